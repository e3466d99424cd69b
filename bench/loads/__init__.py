"""The clients of the benchmark. Each load runs in a process of its own, so that it shares no interpreter with the
harness, and reads the broker's CPU time itself at the edges of what it measures.

A load is a frozen dataclass that says what to do, and a `run` function that does it and returns figures by name.
`python -m bench.loads NAME` reads the dataclass as JSON from standard input and prints the figures as JSON.
"""
