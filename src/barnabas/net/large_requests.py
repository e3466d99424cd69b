"""Requests so large that answering them in one go would keep all other clients waiting.

Such a request is read, answered and encoded piece by piece (`protocol/pieces`): each piece goes to the ordinary handler
as a request of its own, and their answers become one. It is read twice, the first time only to see that it is well
formed to the end and to learn what follows its array; so nothing of a malformed request takes effect. Pieces grow and
shrink so that each takes `SLICE_SECONDS`, and in one turn of the event loop there is one piece of all large requests
together (`Turns`), however many clients send them. Requests behind a large one on its connection wait for it.

Memory. Of a request there are its bytes and the elements of one piece. An answer grows to `ANSWER_BYTES_MAX` at most.
Beyond `SMALL_ANSWER_BYTES` it waits while what the listener holds of requests and answers exceeds
`queued.max.request.bytes`; but the oldest waits only for answers that clients have not taken yet.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.net.connection import BACKLOG_BYTES, BadRequestError
from barnabas.net.pending import Pending
from barnabas.ports.clock import turn_clock
from barnabas.protocol.compiler.decoder import WEIGHT_OF_STRUCT
from barnabas.protocol.pieces import Path, PieceReader, PieceWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence, Sized

    from barnabas.net.connection import Connection
    from barnabas.net.dispatch import Caller, Handler
    from barnabas.net.parts import Part
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.headers import RequestHeader

    LargeHandler = Callable[[Handler, Any, "LargeRequest", Caller], Awaitable[Message | list[Part]]]
    """Takes the ordinary handler, what it works with, the request and its caller. Adds to the answer's array, and
    returns the answer with the rest; or else a list of all parts of the reply, which may have none."""

WHOLE_BYTES_MAX = 8192
"""Requests up to this size are handled in one go."""
SHORT_BYTES_MAX = 2048
"""The same for those whose elements can be a byte long and cost much more than that."""
UNIT_BYTES_MAX = 8 * 1024 * 1024
"""Of a request that is not cut into pieces, or not for its handler: more than the records of any group or broker may
take."""
NAME_BYTES = 128
"""What it takes to remember a name, roughly."""
SLICE_SECONDS = 0.004
FIRST_ELEMENTS, ELEMENTS_MAX = 4, 1000
"""Of a piece."""
ADDED_AT_ONCE, FORGOTTEN_AT_ONCE = 32, 20_000
WHOLE_WEIGHT_MAX = 40_000 * WEIGHT_OF_STRUCT
"""Of a request that cannot be answered in pieces: that many are refused in one go, or encoded. Ten thousand changes of
any kind weigh less, with what belongs to each."""

ANSWER_BYTES_MAX = 256 * 1024 * 1024
SMALL_ANSWER_BYTES = BACKLOG_BYTES
ANSWERS_BYTES_MAX = ANSWER_BYTES_MAX
"""Used in place of `queued.max.request.bytes` if that sets no limit."""


class Cut(NamedTuple):
    """Where requests of some versions are cut into pieces, and where the pieces of the answer are put together. Without
    a path, a request is not cut: its handler looks at its `frame` (`ENCLOSING`)."""

    request_path: Path
    response_path: Path
    first_version: int = 0
    last_version: int = 1 << 15


ENCLOSING = Cut((), ())
"""Of a request that is large because it holds another one, which may be cut itself."""


class Turns:
    """Lets those who ask go on one after another, each in its own turn of the event loop."""

    __slots__ = ("_is_scheduled", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def next(self) -> asyncio.Future[None]:
        turn = self._loop.create_future()
        self._waiting.append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._let_one_go_on)
        return turn

    def _let_one_go_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._loop.call_soon(self._let_one_go_on)
                return
        self._is_scheduled = False


class Breather:
    """For what takes long without being a large request: gives others their turn now and then."""

    __slots__ = ("_clock", "_turn_ends_at")

    def __init__(self) -> None:
        self._clock = turn_clock(asyncio.get_running_loop())
        self._turn_ends_at = self._clock() + SLICE_SECONDS

    async def pause_if_due(self) -> None:
        if self._clock() > self._turn_ends_at:
            await asyncio.sleep(0)
            self._turn_ends_at = self._clock() + SLICE_SECONDS


class TooMuchAtOnceError(Exception):
    """Raised by a handler of frames, before it has done anything, that finds a request to be one for pieces."""


class ClientGoneError(Exception):
    """The client that sent a large request is gone."""


class LargeRequest:
    """A request that is being answered in pieces. The connection holds its bytes."""

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        cut: Cut,
        classes: tuple[type[Message], type[Message]],
        turns: Turns,
    ) -> None:
        self.header = header
        self.frame = frame
        self._connection = connection
        self._server = connection.server
        self._clock = connection.server.turn_clock
        self._turns = turns
        self._outer: LargeRequest | None = None
        request, self._response = classes
        self._version = header.api_version
        self._reader = PieceReader(request, header.api_version, cut.request_path, frame, header.body_offset)
        self._request_path, self._response_path = cut.request_path, cut.response_path
        self._elements = FIRST_ELEMENTS
        self._busy_seconds = 0.0
        """What the present piece has cost so far."""
        self._turn_ends_at = 0.0
        self._charged_bytes = 0
        self._checked_bytes = 0
        self.root: Any = None
        """The request without the elements of its array."""
        self.count = 0
        """The elements of its array."""
        self.answer: PieceWriter[Any] = PieceWriter(self._response, self._version, cut.response_path)

    @property
    def connection(self) -> Connection:
        return self._connection

    @property
    def charged_bytes(self) -> int:
        return self._charged_bytes

    @property
    def size(self) -> int:
        """In bytes, with its header."""
        return len(self.frame)

    @property
    def weight(self) -> int:
        """Of all that it has, once it is checked."""
        return self._reader.total_weight

    @property
    def response_array(self) -> str:
        return self._response_path[0]

    def enclosed(
        self, header: RequestHeader, frame: memoryview, cut: Cut, classes: tuple[type[Message], type[Message]]
    ) -> LargeRequest:
        """A request that this one holds. Its answer is counted as that of this one."""
        enclosed = LargeRequest(self._connection, header, frame, cut, classes, self._turns)
        enclosed._outer = self
        return enclosed

    @contextmanager
    def in_the_making(self) -> Iterator[None]:
        """Counts among what the listener has to answer, for as long as the block lasts."""
        server = self._server
        server.answers_in_the_making[self] = None
        try:
            yield
        finally:
            del server.answers_in_the_making[self]
            server.answers_in_the_making_bytes -= self._charged_bytes
            server.frame_memory_freed()

    async def check(self, look: Callable[[Any], None] | None = None) -> None:
        """Reads it to the end; DecodeError if it is malformed. `look` is shown every piece."""
        self._reader.piece_weight_max = ELEMENTS_MAX * WEIGHT_OF_STRUCT
        await self._take_turn()
        is_within_element = False
        for piece in self._reader.pieces():
            elements = getattr(piece, self._array)
            self.count += len(elements or ()) - is_within_element
            is_within_element = self._reader.is_within_element
            if look is not None:
                look(piece)
            if elements:
                setattr(piece, self._array, [])
            self.root = piece
            if self._clock() > self._turn_ends_at:
                await self._take_turn()

    async def pieces(self) -> AsyncIterator[Any]:
        """The request in pieces, as `check` found it."""
        pieces = self._reader.pieces()
        while True:
            self._reader.piece_weight_max = self._elements * WEIGHT_OF_STRUCT
            await self._take_turn()
            began = self._clock()
            piece = next(pieces, None)
            if piece is None:
                return
            for field in self.root.__slots__:
                if field != self._array:
                    setattr(piece, field, getattr(self.root, field))
            self._busy_seconds = self._clock() - began
            yield piece
            self._learn_size()

    async def whole(self) -> Any:
        """All of it at once, for what cannot be answered in pieces. It must be known to be small enough."""
        if getattr(self.root, self._array) is None:
            return self.root
        elements: list[Any] = []
        is_within_element = False
        async for piece in self.pieces():
            more = getattr(piece, self._array) or []
            if is_within_element:
                inner = self._request_path[1]
                getattr(elements[-1], inner).extend(getattr(more.pop(0), inner))
            elements += more
            is_within_element = self._reader.is_within_element
            self._elements = ELEMENTS_MAX
        setattr(self.root, self._array, elements)
        return self.root

    async def call(self, handler: Handler, host: Any, piece: Any, caller: Caller) -> Any:
        """What a handler answers to a piece."""
        began = self._clock()
        answer = handler(host, piece, caller)
        self._busy_seconds += self._clock() - began
        if isinstance(answer, Pending):
            answer = await answer
        elif inspect.iscoroutine(answer):
            timed = _Timed(answer, self._clock)
            answer = await timed
            self._busy_seconds += timed.longest_seconds
        return answer

    async def add(self, elements: Sequence[Any]) -> None:
        """Adds to the outermost array of the answer."""
        began = self._clock()
        before = self.answer.bytes_written
        self.answer.add(elements)
        self._busy_seconds += self._clock() - began
        await self.charge(self.answer.bytes_written - before)

    async def add_encoded(self, encoded: Iterable[bytes], count: int) -> None:
        before = self.answer.bytes_written
        self.answer.add_encoded(encoded, count)
        await self.charge(self.answer.bytes_written - before)

    async def add_in_slices(self, elements: Sequence[Any]) -> None:
        """As `add`, with turns for others in between."""
        for start in range(0, len(elements), ADDED_AT_ONCE):
            await self.pause_if_due()
            await self.add(elements[start : start + ADDED_AT_ONCE])

    async def answer_only(self, response: Any) -> None:
        """Replaces everything that was added so far."""
        self.answer = PieceWriter(self._response, self._version, self._response_path)
        await self.add(getattr(response, self._response_path[0]))

    async def gather(self, named: Sized, note: Callable[[Any], None]) -> None:
        """Has all pieces noted, before any is answered: `named` is where `note` puts what they name."""
        async for piece in self.pieces():
            before = len(named)
            note(piece)
            await self.charge((len(named) - before) * NAME_BYTES)

    async def charge(self, size: int) -> None:
        """Counts what is kept for the answer. Waits where that is too much now; BadRequestError where it always is."""
        if self._outer is not None:
            await self._outer.charge(size)
            return
        self._charged_bytes += size
        self._server.answers_in_the_making_bytes += size
        if self._charged_bytes > ANSWER_BYTES_MAX:
            raise BadRequestError(
                f"asked for so much at once that the answer exceeds {ANSWER_BYTES_MAX} bytes: ask for less at a time"
            )
        if self._charged_bytes >= self._checked_bytes + SMALL_ANSWER_BYTES:
            self._checked_bytes = self._charged_bytes
            while not self._server.has_memory_for_answer(self) and not self._connection.is_closed:
                await self._server.memory_freed()
            self._check_client()

    async def pause_if_due(self) -> None:
        """Gives others their turn, if this one has had its own."""
        if self._clock() > self._turn_ends_at:
            await self._take_turn()

    async def forget(self, names: set[Any] | dict[Any, Any]) -> None:
        """Empties a set of what was seen. A million names are not gone at once."""
        pop = names.popitem if isinstance(names, dict) else names.pop
        while names:
            for _ in range(min(len(names), FORGOTTEN_AT_ONCE)):
                pop()
            await self._take_turn()

    @property
    def _array(self) -> str:
        return self._request_path[0]

    async def _take_turn(self) -> None:
        await self._turns.next()
        self._check_client()
        self._turn_ends_at = self._clock() + SLICE_SECONDS

    def _check_client(self) -> None:
        self._connection.close_if_left()
        if self._connection.is_closed:
            # The buffer of the request may be somebody else's by now.
            raise ClientGoneError

    def _learn_size(self) -> None:
        fitting = int(self._elements * SLICE_SECONDS / max(self._busy_seconds, 1e-6))
        self._elements = max(1, min(fitting, 2 * self._elements, ELEMENTS_MAX))


class _Timed:
    """Awaits what a coroutine gives, and notes its longest step."""

    __slots__ = ("_clock", "_work", "longest_seconds")

    def __init__(self, work: Any, clock: Callable[[], float]) -> None:
        self._work = work
        self._clock = clock
        self.longest_seconds = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        advance, value = steps.send, None
        while True:
            began = self._clock()
            try:
                waited_for = advance(value)
            except StopIteration as done:
                return done.value
            finally:
                self.longest_seconds = max(self.longest_seconds, self._clock() - began)
            try:
                advance, value = steps.send, (yield waited_for)
            except BaseException as error:
                advance, value = steps.throw, error


async def encode_in_slices(message: Any, version: int, array: str) -> list[bytes]:
    """The body of a message with very many elements in `array`, or with some that are large themselves."""
    writer: PieceWriter[Any] = PieceWriter(type(message), version, (array,))
    breather = Breather()
    for element in getattr(message, array):
        writer.add((element,))
        await breather.pause_if_due()
    return writer.finish(message)


async def in_pieces(handler: Handler, host: Any, request: LargeRequest, caller: Caller) -> Any:
    """For requests whose elements are independent of each other. If a piece is refused as a whole, so is the
    request."""
    await request.check()
    return await answer_pieces(handler, host, request, caller)


async def answer_pieces(handler: Handler, host: Any, request: LargeRequest, caller: Caller) -> Any:
    """As `in_pieces`, for one that is checked."""
    response = None
    async for piece in request.pieces():
        response = await request.call(handler, host, piece, caller)
        if getattr(response, "error_code", 0):
            await request.answer_only(response)
            return response
        await request.add(getattr(response, request.response_array))
    return response


def as_a_whole(count_max: int, refuse: Callable[[Any], Any]) -> LargeHandler:
    """For requests that cannot be answered in pieces, because the outcome for one element depends on the others. One
    with more than `count_max` elements is refused."""

    async def answer(handler: Handler, host: Any, request: LargeRequest, caller: Caller) -> Any:
        await request.check()
        if request.count > count_max or request.weight > WHOLE_WEIGHT_MAX or request.size > UNIT_BYTES_MAX:
            return await answer_pieces(lambda _host, piece, _caller: refuse(piece), host, request, caller)
        response = await request.call(handler, host, await request.whole(), caller)
        await request.add_in_slices(getattr(response, request.response_array))
        return response

    return answer
