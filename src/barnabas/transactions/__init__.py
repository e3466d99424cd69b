"""Transactions: which producer has a transactional id, in which epoch, and how far its transaction has come. Pure.

`transaction_shard` holds the transactional ids of one partition of `__transaction_state`, and takes every request. A
`transaction` is the state machine of one of them. Rules by request: `producer_epochs` (InitProducerId),
`transaction_partitions` (AddPartitionsToTxn), `end_transaction` (EndTxn, timeouts, markers), `transaction_views`
(DescribeTransactions, ListTransactions). Their log is made of `transaction_records`.
"""
