"""The controller: makes every decision about the cluster, as the leader of the metadata quorum.

`decisions/` is pure: a request and the state in, records and a response out. Around it, `quorum_controller` runs the
decisions over Raft on an event loop of its own, and `controller_api` is what its listener serves.
"""
