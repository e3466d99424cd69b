"""The sink: rows into topics, exactly once or at least once.

What to write     sink_options (the options of a write)
On the driver     sink (what Spark calls), write_plan (what is sent to the tasks)
In a task         delivery (both guarantees, step by step), partitioner, producer, checksums
Exactly once      exactly_once (what markers say, and where they are compared with a batch and its rows),
                  marker_store (markers in the cluster), sink_transactions (calls to the transaction coordinator)

`columnar` turns rows into record batches. What runs on the driver imports nothing that only tasks need, because Spark
often plans in a new process.
"""
