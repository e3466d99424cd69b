"""What drives the groups: their partitions of `__consumer_offsets` are loaded, written to and given up here."""
