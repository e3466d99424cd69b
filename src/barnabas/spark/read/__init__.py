"""The source: topics as batch and streaming DataFrames.

What to read      source_options (the options of a read), topic_positions (offsets, and Spark's JSON for them),
                  pushdown (filters that are answered by reading less)
On the driver     batch_reader and stream_reader (what Spark calls), offset_lookup (what the cluster is asked),
                  stream_planner (where the next micro-batch ends), offset_ranges (cut into pieces for tasks),
                  data_loss (records that are gone), read_plan (what is sent to the tasks),
                  group_progress (the consumer group of a query)
In a task         range_reader, fetcher; `columnar` then turns the fetched batches into Arrow

What runs on the driver imports nothing that only tasks need, because Spark often plans in a new process.
"""
