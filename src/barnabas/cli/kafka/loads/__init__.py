"""Tools that put a load on a cluster: to measure it, and to see that nothing of it is lost."""
