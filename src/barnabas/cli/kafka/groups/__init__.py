"""Groups and how far they have come: `kafka-consumer-groups`, `kafka-groups`."""
