"""`barnabas config`: the settings of topics, brokers, groups and client metrics."""
