"""The controller as a state machine: `decide` answers a request with records, `state` applies them.

A decision sees every record that was appended, committed or not, so that requests pipeline; whoever drives it sends
the response only when the records are committed. Time, chance and the next offset of the log come in as arguments.
"""
