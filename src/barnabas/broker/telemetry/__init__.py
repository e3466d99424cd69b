"""The metrics that clients push (KIP-714): which client is asked for which, and where they are kept."""
