"""The coordinator of transactions, over the partitions of `__transaction_state`."""
