"""PURE. KRaft's rules without any I/O: who votes for whom, who leads, what is committed.

`core` is one node of the quorum, with its role and timers; the rest is what it is made of. `messages` are the values
that go in and come out, `replica_log` is what a node must know of its log, with `log_history` for its epochs and
`voter_sets` for the voters as of any offset, `election` is the counting of votes, `fetching` what a follower asks for,
and `leader_state` what a leader knows of everybody else.
"""
