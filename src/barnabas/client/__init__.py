"""Clients of a cluster that speaks Kafka's protocol, ours or Apache Kafka's. From the bottom up:

- `wire`: one connection to one broker; Kafka's messages in, Kafka's messages out.
- `options`, `settings`: what people say about a cluster, checked, as one value that can be compared and sent around.
- `security`, `jaas`: the part of it that says who one is and whom one trusts; `tls`, `sasl`: what that means on a wire.
- `dialing`: a connection as the settings want it.
- `retries`: which failures are worth another try, and until when.
- `cluster`: the right broker for each question, found again when it has moved.
- `pool`: clusters that stay connected from one task of a process to the next.
- `offsets`: the questions that readers and administrators have: where partitions end, how far groups have come.
"""
