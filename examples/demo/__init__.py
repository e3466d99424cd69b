"""`make demo`: a pipeline is watched and killed, and loses nothing."""
