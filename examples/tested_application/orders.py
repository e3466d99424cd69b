"""An application with a producer and a consumer of its own, as the tests beside it find it: it knows Kafka, and nothing
of what it is tested with.

`OrderDesk` writes orders to a topic. `Billing` reads them as a member of a consumer group, and writes an invoice for
each to another topic; it commits an order when its invoice is there, so that none is forgotten.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer

if TYPE_CHECKING:
    import threading

CENTS_PER_PIECE = 250
POLL_S = 0.1


class OrderNotPlacedError(Exception):
    """Kafka did not take the order."""


class OrderDesk:
    def __init__(self, bootstrap: str, topic: str, *, timeout_s: float = 10.0) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": int(timeout_s * 1000),
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def place(self, customer: str, pieces: int) -> None:
        """Returns when the order is safe."""
        outcome: list[Any] = []
        order = json.dumps({"customer": customer, "pieces": pieces})
        self._producer.produce(self._topic, order, key=customer, on_delivery=lambda error, _: outcome.append(error))
        self._producer.flush()
        if outcome[0] is not None:
            raise OrderNotPlacedError(f"{customer}'s order of {pieces}: {outcome[0].str()}")


class Billing:
    def __init__(self, bootstrap: str, orders: str, invoices: str, *, group: str = "billing") -> None:
        self._orders = orders
        self._invoices = invoices
        common = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 0}
        self._producer = Producer({**common, "enable.idempotence": True})
        self._consumer = Consumer(
            {**common, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )

    def run(self, stop: threading.Event) -> None:
        """Bills orders until it is told to stop."""
        self._consumer.subscribe([self._orders])
        try:
            while not stop.is_set():
                message = self._consumer.poll(POLL_S)
                if message is not None and message.error() is None:
                    self._producer.produce(self._invoices, invoice(message.value() or b""), key=message.key())
                    self._producer.flush()
                    self._consumer.commit(message=message)
        finally:
            self._consumer.close()


def invoice(order: bytes) -> str:
    placed = json.loads(order)
    return f"{placed['customer']} owes {placed['pieces'] * CENTS_PER_PIECE} cents"
