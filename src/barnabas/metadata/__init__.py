"""Cluster metadata as values: Kafka's metadata records, the image they add up to, and the controller's decisions.

Everything here is pure. `replay` turns records into an `image`, `snapshot` turns an image back into records,
`loader` says when a new image may be seen, and `controller` decides which records answer a request.
"""
