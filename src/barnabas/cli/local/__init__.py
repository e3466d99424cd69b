"""The nodes that run on this machine, whoever started them: `barnabas status`, `barnabas stop`."""
