"""What a node tells those who watch it: figures for Prometheus, and whether it is alive and ready.

`metrics_server` answers HTTP on an event loop and in a thread of its own, so that nobody who looks holds up a client.
`node_metrics` gathers what the `*_figures` make: families of samples (`metrics/exposition`) of one kind of thing each,
by reading what the event loops of broker and controller keep anyway; they are the only readers that run in another
thread, take what they need in one step of the interpreter, and change nothing. Three figures cannot be read off
afterwards, and are kept while there is a metrics server: requests (`net/request_metrics`), bytes that leave
(`bytes_out` of a partition), and how busy the event loops are (`loop_watch`).
"""
