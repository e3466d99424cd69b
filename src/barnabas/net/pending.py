"""An answer that comes later, without a task that waits for it.

Members of groups ask more often than any other client, and what a coordinator does for one request costs less than a
task and a future would. So the code that has the answer hands it straight to what waits for it: a connection, or a
coroutine.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.protocol.errors import Error

R = TypeVar("R")


class Pending(Generic[R]):
    """Done once, like a future, with an answer or an exception; it may be done before anyone asks for it.

    Where they are given, `refuse` makes an answer of a KafkaError's code, and `finish` completes every answer,
    including that one."""

    __slots__ = ("_error", "_finish", "_on_abandoned", "_on_done", "_refuse", "_response")

    def __init__(self, refuse: Callable[[Error], R] | None = None, finish: Callable[[R], R] | None = None) -> None:
        self._refuse = refuse
        self._finish = finish
        self._response: R | None = None
        self._error: BaseException | None = None
        self._on_done: Callable[[], None] | None = None
        self._on_abandoned: Callable[[], None] | None = None

    def done(self) -> bool:
        return self._response is not None or self._error is not None

    def set_result(self, response: R, /) -> None:
        self._response = response if self._finish is None else self._finish(response)
        if self._on_done is not None:
            self._on_done()

    def set_exception(self, error: BaseException, /) -> None:
        if self._refuse is not None and isinstance(error, KafkaError):
            self.set_result(self._refuse(error.error))
            return
        self._error = error
        if self._on_done is not None:
            self._on_done()

    def result(self) -> R:
        if self._error is not None:
            raise self._error
        assert self._response is not None, "nobody asks before it is done"
        return self._response

    def when_done(self, on_done: Callable[[], None]) -> None:
        """Has `on_done` called when the answer comes, which must not have come yet. Only one can wait."""
        assert self._on_done is None, "somebody waits for this answer already"
        self._on_done = on_done

    def when_abandoned(self, on_abandoned: Callable[[], None]) -> None:
        """Has `on_abandoned` called if the client goes away before the answer comes."""
        self._on_abandoned = on_abandoned

    def abandon(self) -> None:
        """Nobody waits for the answer any more."""
        if self._on_abandoned is not None and not self.done():
            self._on_abandoned()

    def __await__(self) -> Generator[object, None, R]:
        if not self.done():
            came = asyncio.get_running_loop().create_future()
            self.when_done(lambda: None if came.done() else came.set_result(None))
            yield from came
        return self.result()


def answered(response: R) -> Pending[R]:
    """An answer that is there at once."""
    answer: Pending[R] = Pending()
    answer.set_result(response)
    return answer
