"""A topic that fills at a steady pace, whatever happens to its broker."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import confluent_kafka

from tests.clients.adapter import ProducerOptions
from tests.clients.with_confluent import producer_config

if TYPE_CHECKING:
    from pathlib import Path

ACKNOWLEDGED_S_MAX = 120.0


class Source:
    """Writes 0, 1, 2, … to every partition of a topic with an idempotent producer, at a steady pace.

    What the producer says of its epochs and of what it tries again goes to `log`: a record that is there twice is
    explained by that alone.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, every_s: float, log: Path | None = None) -> None:
        config = producer_config(bootstrap, ProducerOptions(idempotent=True, linger_ms=1)) | {"message.timeout.ms": 0}
        self._log = None if log is None else logging.FileHandler(log)
        if self._log is None:
            self._producer = confluent_kafka.Producer(config)
        else:
            self._producer = confluent_kafka.Producer(config | {"debug": "eos"}, logger=_logger_to(self._log))
        self._topic = topic
        self._partitions = partitions
        self._every_s = every_s
        self._is_over = threading.Event()
        self.count = 0
        """How many records each partition gets."""
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self) -> None:
        """Stop, and wait until the node has acknowledged everything."""
        self._end()
        left = self._producer.flush(ACKNOWLEDGED_S_MAX)
        assert left == 0, f"{left} records were never acknowledged"
        assert self.failures == []

    def stop(self) -> None:
        """Stop, whatever has been acknowledged."""
        self._end()
        if self._log is not None:
            self._log.close()

    def _end(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            for partition in range(self._partitions):
                self._producer.produce(self._topic, b"%d" % self.count, partition=partition, on_delivery=self._note)
            self.count += 1
            self._producer.poll(0)

    def _note(self, error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(error.str())


def _logger_to(handler: logging.Handler) -> logging.Logger:
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.Logger("producer", logging.DEBUG)
    logger.addHandler(handler)
    return logger
