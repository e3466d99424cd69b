"""The `barnabas` command: `main` finds the subcommand, and imports only its module, `<name>_command`.

They share `command_line` (arguments, exit codes, CommandError), `cluster_connection` (our own client), `rdkafka`
(librdkafka), `output` (tables and JSON) and `progress_bar`; `demo_load` is the load of `barnabas demo`.
"""
