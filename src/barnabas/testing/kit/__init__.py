"""For tests of Kafka applications: brokers that are there in a moment and fail on demand.

What a test uses is `broker`, `cluster`, `faults` and `client_helpers`. Brokers are forked from a process that has
everything imported (`forks`; its other side is `cli/test_kit/fork_server`). Inside a broker, `fault_control` listens to
the test and makes what it asks for happen: at the listeners (`wire_faults`, `error_answers`), and under the broker
(`faulty_ports`).
"""
