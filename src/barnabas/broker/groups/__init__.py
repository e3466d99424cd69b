"""The coordinator of groups, over the partitions of `__consumer_offsets`."""
