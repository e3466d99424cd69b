"""Group coordinator and transaction coordinator: what drives the state machines of `groups/` and `transactions/`.

`sharded_coordinator` has what both share, and a `led_shard` for each partition that this node leads. It is loaded by
`shard_loading` and written by `shard_writing`. Transaction markers are written by `transaction_markers`.
"""
