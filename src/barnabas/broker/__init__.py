"""The broker: handlers, coordinators and chores over the partitions that this node hosts.

`broker` holds them together; `api/` has a room for each family of requests; `coordinators/` drive groups and
transactions over the partitions of their topics; `lifecycle` is the broker's registration and heartbeat.
"""
