"""For tests of Kafka applications: a real node in a subprocess; and twins of the ports."""
