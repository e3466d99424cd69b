"""The `barnabas` command: one module per subcommand, imported only when that subcommand runs."""
