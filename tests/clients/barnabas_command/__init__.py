"""The `barnabas` command as a person uses it: in pipes, and at a terminal."""
