"""`barnabas transactions`: those that are open, and those that nobody will end."""
