"""Topics, their partitions and their records: `kafka-topics`, `kafka-get-offsets`, `kafka-delete-records`."""
