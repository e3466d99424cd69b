"""Kafka's command-line tools: the same names, flags, output and exit codes, against any cluster that speaks Kafka.

- `catalogue`: which tools there are, and the module of each; `kafka_command` is `barnabas kafka NAME …`.
- `flags` and `subcommands`: the two ways in which Kafka's tools read their command lines.
- `tool`: how a tool ends, well or not.
- `cluster_access`: the cluster that the flags and the property files of a tool describe.

The tools are in rooms by what they are about. Each is a module with `run(words) -> exit code`, and only the one that
runs is imported.
"""
