"""Cluster metadata as values: Kafka's metadata records, and the image they add up to.

Everything here is pure. `replay` turns records into an `image` and decides when a new one may be published;
`snapshot_records` turns an image back into records; `versions` knows what each metadata.version allows.
"""
