"""`barnabas group`: groups of consumers, how far they have come, and where they are to go on."""
