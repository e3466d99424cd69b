"""`make demo`: a pipeline is watched, killed, and loses nothing."""
