"""Brings the broker from image to image, one at a time, and tells its waiters when an image is in effect.

Creating the logs of a new topic takes a while, in threads; images that come in the meantime are then applied together.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.metadata.image import MetadataDelta, MetadataImage


class ImageSubscriber:
    """`image` is the newest one that is completely in effect; `listeners` are called when there is another."""

    def __init__(
        self,
        image: MetadataImage,
        apply: Callable[[MetadataImage, MetadataDelta], Awaitable[None]],
    ) -> None:
        self.image = image
        self.listeners: list[Callable[[MetadataImage, MetadataDelta], None]] = []
        self._apply = apply
        self._next: tuple[MetadataImage, MetadataDelta | None] | None = None
        self._seen = 0
        self._settled = 0
        self._offset = image.offset
        self._news = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def image_published(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._next = (image, delta if self._next is None else None)
        self._seen += 1
        self._news.set()

    def offset_in_effect(self, newest: int) -> int:
        """Up to where the metadata log is in effect. `newest` is the offset of the newest image: it may be later than
        that of the last one published here, as images that differ in nothing else are not."""
        if self._settled == self._seen:
            self._offset = newest
        return self._offset

    async def settled(self) -> None:
        """Returns when every image published until now is in effect."""
        if self._settled < self._seen:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((self._seen, waiter))
            await waiter

    async def run(self) -> None:
        try:
            await self._follow()
        except BaseException as error:
            for _, waiter in self._waiters:
                if not waiter.done():
                    waiter.set_exception(RuntimeError(f"the node no longer follows the metadata: {error!r}"))
            raise

    async def _follow(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            assert self._next is not None
            (image, delta), self._next = self._next, None
            seen = self._seen
            delta = image.diff(self.image) if delta is None else delta
            await self._apply(image, delta)
            self.image = image
            self._offset = image.offset
            for listener in self.listeners:
                listener(image, delta)
            self._settled = seen
            self._wake()

    def _wake(self) -> None:
        waiting, self._waiters = self._waiters, []
        for number, waiter in waiting:
            if number > self._settled:
                self._waiters.append((number, waiter))
            elif not waiter.done():
                waiter.set_result(None)
