"""What a test can have go wrong with a broker while it runs.

    with broker.faults.fill_disk():
        ...
    fault = broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
    ...
    fault.wait_until_struck(3)

Each call has its effect when it returns. A fault lasts until it is ended (`end`, or the end of its `with` block), has
struck so many `times`, or the broker's process ends: a broker that is started again is well.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

ANSWER_SECONDS_MAX: Final = 10.0
_POLL_INTERVAL_S: Final = 0.01
_ANSWER_BYTES: Final = 4_096


class FaultError(Exception):
    """The broker could not be told to fail, or did not fail as it was told."""


class BrokerEndedError(FaultError):
    """The broker that was to fail does not run, or not any more."""


class Fault:
    """Something that goes wrong from now on, in one process of a broker."""

    def __init__(self, faults: Faults, fault_id: int, what: str) -> None:
        self._faults = faults
        self._run = faults.run
        self._id = fault_id
        self._what = what

    @property
    def struck(self) -> int:
        """How often it has struck so far."""
        if self._faults.run != self._run:
            raise BrokerEndedError(f"{self._what} ended with the broker, which has been started again since")
        count: int = self._faults.ask({"struck": self._id})["struck"]
        return count

    def wait_until_struck(self, times: int = 1, *, within_s: float = 10.0) -> None:
        deadline = time.monotonic() + within_s
        while (struck := self.struck) < times:
            if time.monotonic() > deadline:
                raise FaultError(f"{self._what} struck {struck} times within {within_s} s, not {times}")
            time.sleep(_POLL_INTERVAL_S)

    def end(self) -> None:
        """Nothing happens if it is over already, or if the broker is."""
        if self._faults.run == self._run:
            with contextlib.suppress(BrokerEndedError):
                self._faults.ask({"end": self._id})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Faults:
    """Those of one broker. May be used by several threads."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._lock = threading.Lock()
        self.run = 0
        """How often the broker has been started."""

    # ── on the wire ──────────────────────────────────────────────────────────────────────────────────────────

    def answer(self, api: str | int, error: str | int, *, times: int | None = None) -> Fault:
        """Requests of clients of this API, as `Produce` or `ListOffsets`, are answered with this error, as
        `NOT_LEADER_OR_FOLLOWER`, and not carried out. The error is said of everything in the request."""
        return self._begin("answer", api=api, error=error, times=times)

    def drop_acknowledgements(self, *, times: int | None = 1) -> Fault:
        """Records are appended, and replicated as the producer wants it; but instead of the answer the producer sees
        its connection end. Producers that are not idempotent write such records twice."""
        return self._begin("drop_acknowledgements", times=times)

    def delay(self, seconds: float, *, api: str | int | None = None, times: int | None = None) -> Fault:
        """Every request of clients, or those of one API, waits so long before it is handled, and those behind it on
        its connection wait with it."""
        return self._begin("delay", seconds=seconds, api=api, times=times)

    def cut_connections(self) -> None:
        """Ends all connections that there are, other nodes' included. Clients may connect again at once."""
        self._begin("cut")

    def refuse_connections(self) -> Fault:
        """Nobody can connect. Connections that there are stay: `cut_connections` ends them."""
        return self._begin("refuse_connections")

    # ── under the broker ─────────────────────────────────────────────────────────────────────────────────────

    def fill_disk(self, *, free_bytes: int = 0) -> Fault:
        """There is no space left on the disk, or will not be when files have grown by `free_bytes`."""
        return self._begin("fill_disk", free_bytes=free_bytes)

    def fail_fsync(self, *, times: int | None = None) -> Fault:
        """The disk cannot write what it was given: a sync fails with an input/output error. A broker that cannot rely
        on its only folder any more stops by itself."""
        return self._begin("fail_fsync", times=times)

    def jump_clock(self, seconds: float) -> Fault:
        """The broker's wall clock is set forward or, by less than nothing, back. That moves retention, and the
        timestamps of topics with LogAppendTime. Sessions and timeouts go by a clock that nobody sets."""
        return self._begin("jump_clock", seconds=seconds)

    # ── all of them ──────────────────────────────────────────────────────────────────────────────────────────

    def heal(self) -> None:
        """Ends all faults of the broker, if it runs."""
        with contextlib.suppress(BrokerEndedError):
            self.ask({"end": "all"})

    def connect(self) -> socket.socket:
        """For a broker that is about to be started: returns its end of a new channel, which the caller closes."""
        self.disconnect()
        self.run += 1
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(ANSWER_SECONDS_MAX)
        return theirs

    def disconnect(self) -> None:
        """The broker has ended, or is to: it does not survive the end of its channel."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._channel is None:
                raise BrokerEndedError("the broker does not run")
            try:
                self._channel.sendall(json.dumps(question).encode() + b"\n")
                line = self._channel.recv(_ANSWER_BYTES)
            except TimeoutError:
                raise FaultError(f"the broker did not answer within {ANSWER_SECONDS_MAX} s: is it paused?") from None
            except OSError as error:
                raise BrokerEndedError(f"the broker has ended: {error}") from error
        if not line:
            raise BrokerEndedError("the broker has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise FaultError(answer["error"])
        return answer

    def _begin(self, kind: str, **details: object) -> Fault:
        given = {key: value for key, value in details.items() if value is not None}
        said = ", ".join(f"{key}={value}" for key, value in given.items())
        return Fault(self, self.ask({"begin": kind, **given})["fault"], f"{kind}({said})")
