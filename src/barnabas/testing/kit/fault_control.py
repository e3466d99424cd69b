"""Inside a node of the test kit: listens to the test, and makes happen what it asks for.

The channel is a socket to the test's process. Each line is an object in JSON, and each is answered by one:

    {"begin": "answer", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}    {"fault": 1}
    {"struck": 1}                                                                           {"struck": 2}
    {"end": 1}                                                                              {}
    {"end": "all"}                                                                          {}
    {"begin": "jump_clock", "seconds": "soon"}                                              {"error": "..."}

A fault lasts until the test ends it, or has struck so many `times`, or the node ends. When the channel ends, the test's
process is gone, and so is the node at once.
"""

from __future__ import annotations

import difflib
import json
import os
import signal
from typing import TYPE_CHECKING, Any, Final

from barnabas.net.frames import api_name
from barnabas.node.node import Ports
from barnabas.node.process import Outside, system_ports
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from barnabas.testing.kit.faulty_ports import FaultyClock, FaultyDisk
from barnabas.testing.kit.wire_faults import Delay, ErrorAnswer, LostAcknowledgement, WireFaults

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from barnabas.node.node import Node
    from barnabas.testing.kit.wire_faults import WireFault

_LINE_BYTES_MAX: Final = 64 * 1024
ALL: Final = "all"
_ONE_AT_A_TIME: Final = frozenset({"fail_fsync", "fill_disk", "refuse_connections"})
"""Faults of which the last one that was asked for takes the place of those before."""


class FaultRequestError(Exception):
    """The test asks for something that there is not."""


class ActiveFault:
    """One fault that a test has asked for, and how often it has struck."""

    def __init__(self, kind: str, times: int | None, when_over: Callable[[ActiveFault], object]) -> None:
        """`when_over` is called, from whatever thread, when it has struck often enough."""
        self.kind = kind
        self.struck = 0
        self._times = times
        self._when_over = when_over
        self._has_ended = False
        self.undo: Callable[[], None] | None = None
        """None when it is over, or was so at once."""

    def strike(self) -> bool:
        """Whether the fault strikes now. Not to be called by two threads at once."""
        if self._has_ended or (self._times is not None and self.struck >= self._times):
            return False
        self.struck += 1
        if self.struck == self._times:
            self._when_over(self)
        return True

    def end(self) -> None:
        self._has_ended = True
        undo, self.undo = self.undo, None
        if undo is not None:
            undo()


class FaultControl:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._received = b""
        self._disk = FaultyDisk()
        self._clock = FaultyClock()
        self._faults: dict[int, ActiveFault] = {}
        self._last_id = 0
        self._node: Node | None = None
        self._wire: WireFaults | None = None

    def outside(self) -> Outside:
        """What a node of the test kit runs on."""
        system = system_ports()
        ports = Ports(self._clock, self._disk, system.random, system.threads, system.network, system.processes)
        return Outside(ports, self._attach)

    def _attach(self, node: Node) -> None:
        self._node = node
        self._wire = WireFaults(node.client_servers)
        self._channel.setblocking(False)
        node.loop.add_reader(self._channel.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        try:
            data = self._channel.recv(_LINE_BYTES_MAX)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            os.kill(os.getpid(), signal.SIGKILL)
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._channel.send(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            return self._obey(json.loads(line))
        except FaultRequestError as error:
            return {"error": str(error)}
        except (KeyError, TypeError, ValueError) as error:
            return {"error": f"{line.decode(errors='replace')} cannot be understood: {error!r}"}

    def _obey(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        if "begin" in asked:
            return {"fault": self._begin(asked)}
        if "struck" in asked:
            return {"struck": self._fault(asked["struck"]).struck}
        which = list(self._faults) if asked["end"] == ALL else [asked["end"]]
        for fault_id in which:
            self._fault(fault_id).end()
        return {}

    def _fault(self, fault_id: int) -> ActiveFault:
        if fault_id not in self._faults:
            raise FaultRequestError(f"there is no fault {fault_id}: the broker may have been restarted since it began")
        return self._faults[fault_id]

    def _begin(self, asked: Mapping[str, Any]) -> int:
        kind = asked["begin"]
        begin = self._kinds.get(kind)
        if begin is None:
            raise FaultRequestError(f"unknown fault {kind!r}; {nearest(kind, self._kinds)}")
        loop = self._running.loop
        fault = ActiveFault(kind, asked.get("times"), lambda over: loop.call_soon_threadsafe(over.end))
        if kind in _ONE_AT_A_TIME:
            for other in self._faults.values():
                if other.kind == kind:
                    other.end()
        begin(self, fault, asked)
        self._last_id += 1
        self._faults[self._last_id] = fault
        return self._last_id

    def _answer_with_error(self, fault: ActiveFault, asked: Mapping[str, Any]) -> None:
        self._add(fault, ErrorAnswer(api_key_of(asked["api"]), error_of(asked["error"]), fault.strike))

    def _lose_acknowledgements(self, fault: ActiveFault, _: Mapping[str, Any]) -> None:
        self._add(fault, LostAcknowledgement(self._running.loop, fault.strike))

    def _delay(self, fault: ActiveFault, asked: Mapping[str, Any]) -> None:
        api_key = None if asked.get("api") is None else api_key_of(asked["api"])
        self._add(fault, Delay(self._running.loop, float(asked["seconds"]), api_key, fault.strike))

    def _add(self, fault: ActiveFault, wire_fault: WireFault) -> None:
        assert self._wire is not None
        wire = self._wire
        wire.add(wire_fault)
        fault.undo = lambda: wire.remove(wire_fault)

    def _refuse_connections(self, fault: ActiveFault, _: Mapping[str, Any]) -> None:
        servers = self._running.client_servers
        servers.stop_accepting()
        fault.undo = servers.accept_again

    def _cut(self, fault: ActiveFault, _: Mapping[str, Any]) -> None:
        fault.strike()
        self._running.client_servers.cut()

    def _fill_disk(self, fault: ActiveFault, asked: Mapping[str, Any]) -> None:
        self._disk.fill(int(asked.get("free_bytes", 0)), fault.strike)
        fault.undo = lambda: self._disk.fill(None)

    def _fail_syncs(self, fault: ActiveFault, _: Mapping[str, Any]) -> None:
        self._disk.fail_syncs(fault.strike)
        fault.undo = lambda: self._disk.fail_syncs(None)

    def _jump_clock(self, fault: ActiveFault, asked: Mapping[str, Any]) -> None:
        jump_ms = int(float(asked["seconds"]) * 1000)
        fault.strike()
        self._clock.off_ms += jump_ms

        def jump_back() -> None:
            self._clock.off_ms -= jump_ms

        fault.undo = jump_back

    _kinds: Final = {
        "answer": _answer_with_error,
        "cut": _cut,
        "delay": _delay,
        "drop_acknowledgements": _lose_acknowledgements,
        "fail_fsync": _fail_syncs,
        "fill_disk": _fill_disk,
        "jump_clock": _jump_clock,
        "refuse_connections": _refuse_connections,
    }

    @property
    def _running(self) -> Node:
        assert self._node is not None
        return self._node


def api_key_of(name: str | int) -> ApiKey:
    """By its number, or by its name in Kafka's messages or constants: `ListOffsets`, `LIST_OFFSETS`."""
    if isinstance(name, int):
        return ApiKey(name)
    known = {_letters(api_name(key)): ApiKey(key) for key in APIS}
    if _letters(name) not in known:
        raise FaultRequestError(f"unknown API {name!r}; {nearest(name, (api_name(key) for key in APIS))}")
    return known[_letters(name)]


def error_of(name: str | int) -> Error:
    if isinstance(name, int):
        return Error(name)
    try:
        return Error[name]
    except KeyError:
        raise FaultRequestError(f"unknown error {name!r}; {nearest(name, Error.__members__)}") from None


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def nearest(word: str, known: Any) -> str:
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(words)}"
