"""PURE. Figures about what a node does: counted where it happens, read by whoever watches.

- `histogram`: how long things took, in a fixed amount of memory.
- `exposition`: families of samples, and the text in which Prometheus reads them.

Names are those under which existing dashboards know Kafka: its JMX names as the usual exporter rules turn them into
Prometheus' (`kafka_server_brokertopicmetrics_messagesin_total`). What Kafka has no name for begins with `barnabas_`.
"""
