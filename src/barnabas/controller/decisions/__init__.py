"""The controller as a state machine: `decide` turns a request into records and a response, `controller_state` applies
the records.

A decision sees every record that was appended, committed or not, so that requests can be pipelined; the response is
sent only when the records are committed. Time, randomness and the next offset of the log are passed as arguments.
"""
