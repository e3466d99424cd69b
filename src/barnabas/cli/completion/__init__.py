"""`barnabas completion`: what a shell offers at Tab."""
