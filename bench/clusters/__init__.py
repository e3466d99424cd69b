"""Clusters of three nodes beside clusters of three Apache Kafka nodes: `python -m bench clusters`."""
