"""kafka-console-producer and kafka-console-consumer: lines in, records out, and the other way round."""
