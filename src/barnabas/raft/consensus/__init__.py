"""PURE. KRaft's rules without any I/O: votes, leadership, and what is committed.

`core` takes every message and tick to its rule, in `standing` (elections), `leading` or `following`; `node_state` is
what these change. `messages` are the values that go in and come out, `replica_log` is what a node must know of its log,
with `log_history` for its epochs and `voter_sets` for the voters as of any offset, `election` is the counting of votes,
`fetching` what a follower asks for, and `leader_state` what a leader knows of the other replicas.
"""
