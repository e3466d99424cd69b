"""Whole clusters in simulated time: real nodes, clients that load them, faults, and promises that are checked.

    barnabas simulate --seeds 100

Theory of operation. `cluster` makes nodes exactly as they are elsewhere, and gives each of them simulated ports: a
clock, a disk, a network, threads, all driven by one scheduler (`barnabas.testing.event_loop`) in one thread. `load` has
the clients: idempotent and transactional producers, members of groups, readers. `faults` draws from the seed what goes
wrong, and when. `invariants` are the promises: they look at the nodes and at what clients were told, all the time.
`run` puts them together: one seed is one run, and a run depends on nothing but its seed, the number of nodes and the
settings. So a seed that breaks a promise breaks it again, and is run a second time with the `trace` on.

Records survive the loss of unsynced bytes while fewer than `min.insync.replicas` replicas lose theirs at once, so power
fails at one node at a time: the next one only after that one is back in sync everywhere.
"""
