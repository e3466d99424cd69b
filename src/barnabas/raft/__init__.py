"""The metadata quorum: Kafka's Raft (KRaft), as pure rules with a driver around them.

`consensus` decides, `driver` makes the decisions durable and reports what is committed, `wire` is the way to and from
other nodes, and `quorum_client` holds these together: one node's part in the quorum. `image_publisher` replays what is
committed into images for the broker and the controller, `current_leader` tells the rest of the node which node leads,
and `observer` is a node that only follows. `folder` has the files, and `snapshotter` keeps the log short.
"""
