"""Groups of the consumer protocol (KIP-848): the broker makes the assignment, heartbeats bring members to it."""
