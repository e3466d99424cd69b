"""The folder `__cluster_metadata-0`: `metadata_log` with its `metadata_batches`, `snapshots` with the
`snapshot_download` of one that a leader sends, and `quorum_state`. `format` creates it for a new cluster.
"""
