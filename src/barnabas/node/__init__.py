"""One process: a broker and a controller, with the ports and folders that they share.

`node` starts and stops them; `listener_servers` serves the listeners, `folders` opens the entries of `log.dirs`.
"""
