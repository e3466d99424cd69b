"""The application tested with pytest: what `barnabas_...` names is there because Barnabas is installed.

pytest
pytest -n 2
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from orders import Billing, OrderDesk, OrderNotPlacedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.testing import Broker


@contextmanager
def running(billing: Billing) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=billing.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_an_order_is_in_the_topic_when_it_is_placed(barnabas_broker: Broker, barnabas_topic: str) -> None:
    OrderDesk(barnabas_broker.bootstrap, barnabas_topic).place("alice", 2)
    barnabas_broker.expect(barnabas_topic, ['{"customer": "alice", "pieces": 2}'])


def test_an_order_is_not_doubled_when_nobody_hears_that_it_was_written(
    barnabas_broker: Broker, barnabas_topic: str
) -> None:
    lost = barnabas_broker.faults.drop_acknowledgements(times=2)
    OrderDesk(barnabas_broker.bootstrap, barnabas_topic).place("bob", 1)
    assert lost.struck == 2
    barnabas_broker.expect(barnabas_topic, ['{"customer": "bob", "pieces": 1}'])


def test_an_order_is_placed_though_the_leader_has_to_be_looked_for(
    barnabas_broker: Broker, barnabas_topic: str
) -> None:
    barnabas_broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
    OrderDesk(barnabas_broker.bootstrap, barnabas_topic).place("carol", 1)
    barnabas_broker.expect(barnabas_topic, ['{"customer": "carol", "pieces": 1}'])


def test_whoever_orders_hears_that_the_disk_is_full(barnabas_broker: Broker, barnabas_topic: str) -> None:
    desk = OrderDesk(barnabas_broker.bootstrap, barnabas_topic, timeout_s=1.0)
    with barnabas_broker.faults.fill_disk(), pytest.raises(OrderNotPlacedError, match="dave's order of 4"):
        desk.place("dave", 4)
    barnabas_broker.expect(barnabas_topic, [])


def test_every_order_is_billed_once(barnabas_broker: Broker, barnabas_topic: str) -> None:
    invoices, group = barnabas_broker.create_topic(), f"billing-{barnabas_topic}"
    desk = OrderDesk(barnabas_broker.bootstrap, barnabas_topic)
    with running(Billing(barnabas_broker.bootstrap, barnabas_topic, invoices, group=group)):
        barnabas_broker.wait_until_stable(group, members=1)
        desk.place("alice", 2)
        desk.place("bob", 1)
        barnabas_broker.expect(invoices, ["alice owes 500 cents", "bob owes 250 cents"])
        barnabas_broker.wait_until_no_lag(group, barnabas_topic)


def test_no_order_is_forgotten_when_the_broker_is_killed(barnabas_own_broker: Broker) -> None:
    broker = barnabas_own_broker
    orders, invoices = broker.create_topic("orders"), broker.create_topic("invoices")
    desk = OrderDesk(broker.bootstrap, orders)
    with running(Billing(broker.bootstrap, orders, invoices)):
        desk.place("alice", 2)
        broker.expect(invoices, ["alice owes 500 cents"])
        broker.kill()
        broker.start()
        desk.place("bob", 1)
        broker.wait_until_no_lag("billing", orders, within_s=30)
    assert {record.key for record in broker.consume(invoices, 2)} == {b"alice", b"bob"}
