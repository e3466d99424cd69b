"""Transactions: which there are, what becomes of them, and how to end those that nobody else will end."""
