"""`barnabas watch`: a client that does what users do, once in an interval, and says how well they are served.

- `probe`: one record written and read back, with how long that took.
- `outcome`: figures and the service level objective, from the results of probes.
- `watch_command`: the command line, the clock, what is printed.
"""
