"""Settings of everything that has them: `kafka-configs`, `kafka-client-metrics`."""
