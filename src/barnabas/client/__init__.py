"""Clients of a cluster that speaks Kafka's protocol, ours or Apache Kafka's. From the bottom up:

- `broker_connection`: one connection to one broker; Kafka's messages in, Kafka's messages out (frames as in `net`).
- `option_reader`, `client_settings`: what people say about a cluster, checked, as one value that can be compared and
  sent around.
- `security`, `jaas`: the part of it that says who the client is and which brokers it trusts; `tls`, `sasl`: what that
  means on a wire.
- `retries`: which failures are worth another try, and until when.
- `cluster`: connections as the settings want them, and the right broker for each question, found again when it moved.
- `pool`: clusters that stay connected from one task of a process to the next.
- `offset_queries`: the questions that readers and administrators have: where partitions end, how far groups have come.
"""
