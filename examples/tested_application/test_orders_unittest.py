"""The same application tested with nothing but the standard library, on threads and in an event loop.

python -m unittest
"""

from __future__ import annotations

import asyncio
import unittest

from orders import OrderDesk, OrderNotPlacedError

from barnabas.testing import Broker


class OrderDeskTest(unittest.TestCase):
    broker: Broker

    @classmethod
    def setUpClass(cls) -> None:
        cls.broker = cls.enterClassContext(Broker())

    def setUp(self) -> None:
        self.addCleanup(self.broker.faults.heal)
        self.topic = self.broker.create_topic()

    def test_an_order_is_in_the_topic_when_it_is_placed(self) -> None:
        OrderDesk(self.broker.bootstrap, self.topic).place("alice", 2)
        self.broker.expect(self.topic, ['{"customer": "alice", "pieces": 2}'])

    def test_an_order_waits_for_a_broker_that_cannot_be_reached(self) -> None:
        patient = OrderDesk(self.broker.bootstrap, self.topic)
        with self.broker.faults.refuse_connections():
            self.broker.faults.cut_connections()
            with self.assertRaises(OrderNotPlacedError):
                OrderDesk(self.broker.bootstrap, self.topic, timeout_s=0.5).place("alice", 1)
        patient.place("bob", 1)
        self.broker.expect(self.topic, ['{"customer": "bob", "pieces": 1}'])


class OrderDeskInAnEventLoopTest(unittest.IsolatedAsyncioTestCase):
    async def test_an_order_is_kept_when_the_broker_is_killed(self) -> None:
        async with Broker() as broker:
            topic = await broker.create_topic()
            await asyncio.to_thread(OrderDesk(broker.bootstrap, topic).place, "alice", 2)
            await broker.kill()
            await broker.start()
            await broker.expect(topic, ['{"customer": "alice", "pieces": 2}'])


if __name__ == "__main__":
    unittest.main()
