"""`barnabas start --nodes N`: several nodes of one cluster on this machine, under one command.

`config/cluster_layout` decides the address and the role of each node; `home` keeps that in the data folder and formats
the nodes; `supervision` starts, watches and stops their processes (`child`), and `console` merges what they print.
"""
