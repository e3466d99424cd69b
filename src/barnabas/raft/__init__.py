"""The metadata quorum: Kafka's Raft (KRaft), as a pure core with a driver around it.

`core` decides, `driver` makes the decisions durable and reports what is committed, and `image_publisher` replays that
into images for the broker and the controller. `metadata_log`, `quorum_state` and `snapshots` are the files; `format`
creates them for a new cluster.
"""
