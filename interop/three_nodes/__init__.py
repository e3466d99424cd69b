"""Clients and tools on clusters of three nodes."""
