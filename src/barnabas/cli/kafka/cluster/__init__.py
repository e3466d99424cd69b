"""The cluster as a whole: its nodes, quorum, features, leaders, and where replicas are."""
