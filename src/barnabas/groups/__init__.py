"""Groups and their offsets, as state machines that replay a partition of `__consumer_offsets`. Pure.

A step takes a request and the time, changes the state at once, and returns the effects that it asks for: records to
append, and answers to send when these are committed. Nothing here waits, reads a clock or makes up an id.

`group_shard` holds all groups of a partition, and takes every request. `classic/` has the groups whose members agree
on their assignment among themselves (JoinGroup, SyncGroup, Heartbeat), `consumer/` those of KIP-848, whose assignment
the broker makes (`consumer/heartbeat` decides on ConsumerGroupHeartbeat) with one of the `assignors/`; `conversion`
turns one into the other. `offsets/` has the committed offsets. `group_views` lists, describes and deletes groups, and
`group_records` is their form in the log.
"""
