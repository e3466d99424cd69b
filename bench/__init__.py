"""Barnabas beside Apache Kafka, on the machine that it runs on: `python -m bench`, or `make bench`.

Both brokers run as processes with their default settings, under the same clients, in interleaved rounds. One table
says how they compare: ratios of medians, and how far the rounds lay apart.
"""
