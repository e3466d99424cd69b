"""kafka-dump-log: what is in the files of a partition, line by line."""
