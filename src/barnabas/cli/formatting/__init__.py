"""`barnabas format` and `barnabas random-uuid`: folders prepared for a node before it first starts.

`folders` writes them, for this command and for the supervisor of several nodes; `features` says what a new cluster
begins with.
"""
