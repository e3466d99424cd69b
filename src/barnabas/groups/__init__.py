"""Consumer groups and their offsets as state machines that a partition of `__consumer_offsets` replays. Pure.

A step takes a request and the time, changes the state at once, and returns the effects that it asks for: records to
append and answers to send when they are committed. Nothing here waits, reads a clock or makes up an id.
"""
