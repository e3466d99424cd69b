"""Starts the nodes of a cluster, starts again those that die, and stops them in the order that a clean stop needs.

A broker that stops hands over its partitions first, and only the quorum can decide that. So the quorum goes last:

1. Nodes that are only brokers get SIGTERM, and have ended before the next step.
2. Nodes that are broker and controller, where there are several, get SIGUSR1: they stop their broker, say so, and keep
   their controller. One alone does not need that: its own controller outlives its broker anyway.
3. When every broker is down, these nodes get SIGTERM.

At a second signal there is no order any more: everything is killed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.command_line import EXIT_FAILED, EXIT_OK
from barnabas.cli.supervisor.child import STOP_BROKER, Child, exit_text

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from barnabas.cli.supervisor.console import Console, JsonConsole

RESTART_PAUSE_S: Final = 1.0
ECHO_S: Final = 0.25
"""The same signal so soon after the first is its echo: it was sent to this process and to its group."""
PATIENCE_S: Final = 10.0
"""How often it is said for whom a stop waits."""

logger = logging.getLogger("barnabas.nodes")


class NodePlan(NamedTuple):
    name: str
    command: tuple[str, ...]
    is_controller: bool


class Supervisor:
    """`run` is the whole life of it. `on_first_ready` is called when the first node serves, `on_ready` when all have;
    each once."""

    def __init__(
        self,
        nodes: Sequence[NodePlan],
        console: Console | JsonConsole,
        on_first_ready: Callable[[], None],
        on_ready: Callable[[], None],
        *,
        restart_pause_s: float = RESTART_PAUSE_S,
    ) -> None:
        self._nodes = nodes
        self._console = console
        self._on_first_ready = on_first_ready
        self._on_ready = on_ready
        self._restart_pause_s = restart_pause_s
        self._children: dict[str, Child] = {}
        self._served: set[str] = set()
        """Nodes that have served clients since this process was started."""
        self._stopping = asyncio.Event()
        self._killing = asyncio.Event()
        self._failed = False
        self._first_signal: tuple[signal.Signals, float] | None = None

    async def run(self) -> int:
        """Returns the exit code when all nodes have ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        keepers = [asyncio.ensure_future(self._keep(node)) for node in self._nodes]
        try:
            await self._stopping.wait()
            stopping = asyncio.ensure_future(self._stop())
            killing = asyncio.ensure_future(self._killing.wait())
            await asyncio.wait({stopping, killing}, return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                self._kill_all()
            for task in (stopping, killing):
                task.cancel()
            await asyncio.gather(stopping, killing, return_exceptions=True)
            await asyncio.gather(*keepers)
        finally:
            # Also after a mistake of ours: no process is left behind.
            self._kill_all()
            await asyncio.gather(*keepers, return_exceptions=True)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        return EXIT_FAILED if self._failed or self._killing.is_set() else EXIT_OK

    async def _keep(self, node: NodePlan) -> None:
        """Has the node run until the cluster is to stop."""
        while not self._stopping.is_set():
            child = await Child.start(node.command, lambda line: self._console.show(node.name, line))
            self._children[node.name] = child
            if self._stopping.is_set():
                # The order to stop came while it was being started, and did not find it.
                child.send(signal.SIGKILL if self._killing.is_set() else signal.SIGTERM)
            noticing = asyncio.ensure_future(self._notice_ready(node, child))
            code = await child.wait()
            noticing.cancel()
            await asyncio.gather(noticing, return_exceptions=True)
            del self._children[node.name]
            if self._stopping.is_set():
                self._check_end(node, child, code)
                return
            if node.name not in self._served and code > 0:
                # It has said why it cannot start, and would say so again.
                logger.error("%s %s before it was ready: stopping all nodes", node.name, exit_text(code))
                self._failed = True
                self._stopping.set()
                return
            pause = self._restart_pause_s
            logger.error("%s (process %d) %s; starting it again in %g s", node.name, child.pid, exit_text(code), pause)
            await self._pause(pause)

    async def _notice_ready(self, node: NodePlan, child: Child) -> None:
        await child.is_ready.wait()
        if not self._served:
            self._on_first_ready()
        if len(self._served) < len(self._nodes):
            self._served.add(node.name)
            if len(self._served) == len(self._nodes):
                self._on_ready()

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _check_end(self, node: NodePlan, child: Child, code: int) -> None:
        # A process that has only just been started ends at once: there is nothing yet that it could stop cleanly.
        if code != 0 and not (code == -signal.SIGTERM and not child.is_ready.is_set()):
            logger.error("%s %s instead of stopping cleanly", node.name, exit_text(code))
            self._failed = True

    async def _stop(self) -> None:
        await self._end([node for node in self._nodes if not node.is_controller])
        controllers = [node for node in self._nodes if node.is_controller]
        if len(controllers) > 1:
            # A node that has just been started has no broker yet that could leave, and does not know the signal.
            serving = [child for child in self._running(controllers) if child.is_ready.is_set()]
            for child in serving:
                child.send(STOP_BROKER)
            await self._wait_for([child.broker_stopped.wait() for child in serving])
        await self._end(controllers)

    async def _end(self, nodes: Iterable[NodePlan]) -> None:
        running = self._running(nodes)
        for child in running:
            child.send(signal.SIGTERM)
        await self._wait_for([child.wait() for child in running])

    def _running(self, nodes: Iterable[NodePlan]) -> list[Child]:
        return [self._children[node.name] for node in nodes if node.name in self._children]

    async def _wait_for(self, events: Iterable[Coroutine[None, None, object]]) -> None:
        """However long it takes: whoever has no patience sends a second signal."""
        waiting = {asyncio.ensure_future(event) for event in events}
        try:
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=PATIENCE_S)
                if waiting:
                    names = ", ".join(sorted(self._children))
                    logger.info("still running: %s; a second signal ends all nodes at once", names)
        finally:
            for task in waiting:
                task.cancel()

    def _kill_all(self) -> None:
        for child in self._children.values():
            child.send(signal.SIGKILL)

    def _on_signal(self, number: signal.Signals) -> None:
        now = asyncio.get_running_loop().time()
        if self._first_signal is None:
            self._first_signal = number, now
            logger.info("%s: stopping all nodes, brokers first", number.name)
            self._stopping.set()
        elif self._first_signal[0] is not number or now - self._first_signal[1] > ECHO_S:
            logger.warning("%s again: ending all nodes at once", number.name)
            self._killing.set()
