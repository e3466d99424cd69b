"""Records going into topics and coming out of them: `barnabas produce`, `barnabas consume`."""
