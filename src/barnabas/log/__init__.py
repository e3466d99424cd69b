"""One partition on disk, in Kafka's files: batches, segments, indexes, producers, recovery, retention.

`partition_log` is the log itself; `segments/` are its files, `producers/` what it remembers of its producers, `folder/`
the data folder around all partitions, `recovery` what makes a log of files after a crash.
"""
