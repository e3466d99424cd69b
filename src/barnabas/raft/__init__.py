"""The metadata quorum: Kafka's Raft (KRaft), as a pure core with a driver around it.

`core` decides, `driver` keeps what it decides durable and says what is committed. `log`, `quorum_state` and
`snapshots` are its files; `format` makes them for a new cluster.
"""
