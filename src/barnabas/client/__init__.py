"""Clients of a cluster that speaks Kafka's protocol, ours or Apache Kafka's."""
