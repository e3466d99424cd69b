"""A broker for tests, on real sockets and with a real log, that is there in a tenth of a second and fails on demand.

with Broker() as broker:
    topic = broker.create_topic(partitions=3)
    my_producer(broker.bootstrap, topic).send("hello")
    broker.expect(topic, ["hello"])

async with Broker() as broker:
    topic = await broker.create_topic()
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING, Final

from barnabas.testing.kit.client_helpers import ClientHelpers
from barnabas.testing.kit.faults import Faults
from barnabas.testing.kit.forks import fork_server
from barnabas.testing.node_process import Node
from barnabas.testing.several_nodes import reserved_port

if TYPE_CHECKING:
    import os
    import signal
    from collections.abc import Mapping
    from types import TracebackType
    from typing import BinaryIO, Self

    from barnabas.testing.kit.asynchronous import AsyncBroker
    from barnabas.testing.node_process import Process

FOLDER_PREFIX: Final = "barnabas-"
TEST_SETTINGS: Final[Mapping[str, str]] = {
    "controller.quorum.election.timeout.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "200",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Where Kafka's defaults would have tests wait: the first member of a group does not wait for others, members may be
missed early, topics of the broker's own are small, and a controller that could not write is back soon."""


class Broker(Node, ClientHelpers):
    """A node in a process of its own, which ends with the process of the test.

    Its folder is a temporary one, which goes with it, unless there is a `data_dir`. It keeps its port when it is
    started again. `settings` are Kafka's settings of brokers, on top of `TEST_SETTINGS`.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        log_file: str | os.PathLike[str] | None = None,
        config_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if data_dir is None:
            self._folder = tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, ignore_cleanup_errors=True)
            data_dir = f"{self._folder.name}/data"
        self._reservation = None if port else reserved_port()
        if self._reservation is not None:
            port = self._reservation.getsockname()[1]
        if config_file is None:
            settings = {**TEST_SETTINGS, **(settings or {})}
        super().__init__(data_dir, port=port, settings=settings, log_file=log_file, config_file=config_file)
        self.faults = Faults()
        """What can be made to go wrong while the broker runs."""

    @property
    def bootstrap(self) -> str:
        return super().bootstrap

    def kill(self) -> None:
        super().kill()
        self.faults.disconnect()

    def close(self) -> None:
        """Ends the broker if it runs, and gives back its port and, if that is a temporary one, its folder."""
        self.kill()
        if self._reservation is not None:
            self._reservation.close()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._folder is None:  # what is in the folder is to be used again
                super().__exit__(kind, value, trace)
        finally:
            self.close()

    async def __aenter__(self) -> AsyncBroker:
        from barnabas.testing.kit.asynchronous import AsyncBroker

        await asyncio.to_thread(self.__enter__)
        return AsyncBroker(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, value, trace)

    def _spawn(self, log: BinaryIO) -> Process:
        server = fork_server()
        if self._folder is not None:
            server.remove_at_the_end(self._folder.name)
        with self.faults.connect() as channel:
            return server.run(self._words(), log.fileno(), channel)

    def _wait(self, number: signal.Signals, deadline_s: float) -> int:
        code = super()._wait(number, deadline_s)
        self.faults.disconnect()
        return code
