"""`barnabas format` and `barnabas random-uuid`: folders prepared for a node before it first starts."""
