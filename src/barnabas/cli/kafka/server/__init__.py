"""Nodes started and stopped as Kafka's scripts do it, and what those scripts had for ZooKeeper."""
