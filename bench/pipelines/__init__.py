"""Source and sink beside Spark's own connector: one node, one session, the same data."""
