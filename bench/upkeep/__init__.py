"""One node at its chores and at its limits, beside Apache Kafka's: `python -m bench upkeep`."""
