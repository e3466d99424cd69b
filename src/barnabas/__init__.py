"""Barnabas: Apache Kafka's protocol and file formats, in Python."""
