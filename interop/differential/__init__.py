"""The same sequence of requests to a node of Barnabas and to Apache Kafka: every answer has to be the same.

    python -m interop.differential --seeds 4 --requests 5000

`generation` makes sequences up, out of the schemas of the protocol and a stock of names and values, right and wrong.
`references` are what stands in a request for an id that each broker gives out itself. `running` sends a sequence to
both sides, `comparison` makes their answers comparable and says where they differ, with `comparison/allowed` as the
list of what may differ. `campaign` has Hypothesis generate sequences, and shrink one that shows a difference.
"""
