"""Clients of other languages and Apache Kafka's own tools, run against a node: see README.md beside this file."""
