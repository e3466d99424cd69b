"""Single partitions: where they begin and end, how their oldest records go, and whether replicas are the same."""
