"""Groups of the classic protocol: a leader among the members makes the assignment."""
