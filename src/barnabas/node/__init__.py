"""One process: a broker and a controller, with the ports and folders that they share.

`node` starts and stops them, `process` gives them a process; `listener_servers` serves the listeners, `format_folders`
prepares the entries of `log.dirs` and `folders` opens them.
"""
