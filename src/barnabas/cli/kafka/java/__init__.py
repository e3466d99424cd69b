"""How Java prints, reads and orders things, and names what goes wrong: what Kafka's tools show comes from there."""
