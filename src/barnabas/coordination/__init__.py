"""What group and transaction coordinators have in common: the effects of a step, and the framing of their records.
Pure."""
