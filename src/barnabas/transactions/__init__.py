"""Transactions: which producer has which id and epoch, and how far each of its transactions has come. Pure."""
