"""Kafka's tools under their own names: `barnabas kafka install` and `barnabas kafka home`."""
