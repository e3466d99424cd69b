"""PURE. KRaft's rules without any I/O: who votes for whom, who leads, what is committed.

`core` is one node of the quorum, with its role and timers; the rest is what it is made of. `messages` are the values
that go in and come out, `voter_sets` the voters as of any offset, `log_history` what a node must know of its log,
`election` the counting of votes, and `leader_state` what a leader knows of everybody else.
"""
