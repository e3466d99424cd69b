"""What administrators ask of a cluster and tell it, as functions of a `Cluster`: a module for each kind of thing.

What goes wrong with one of several things is part of the answer; what goes wrong with the question is a `KafkaError`.
"""
