"""The committed offsets of groups: commits, fetches, transactions, expiry."""
