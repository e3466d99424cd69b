"""The partitions that this node hosts: leadership, in-sync replicas, high watermark, and the logs behind them."""
