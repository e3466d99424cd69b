"""Tools that move partitions: their leaders to other replicas, and their replicas to other brokers and folders."""
