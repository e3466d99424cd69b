"""Images take effect one after the other, and whoever waits learns when, or that they never will."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.image_subscriber import ImageSubscriber
from barnabas.metadata.image import MetadataDelta, MetadataImage, TopicImage, TopicsImage
from barnabas.protocol.uuids import Uuid


def image(offset: int) -> MetadataImage:
    topics = {f"t{n}": TopicImage(f"t{n}", Uuid(n.to_bytes(16, "big")), ()) for n in range(offset)}
    return MetadataImage("c", offset=offset, topics=TopicsImage(topics, {t.topic_id: t for t in topics.values()}))


def test_images_that_come_while_one_is_applied_are_taken_together_with_the_whole_difference() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        applied: list[tuple[int, int]] = []

        async def apply(new: MetadataImage, delta: MetadataDelta) -> None:
            await gate.wait()
            applied.append((new.offset, len(delta.created_topics)))

        follower = ImageSubscriber(image(0), apply)
        running = asyncio.ensure_future(follower.run())
        images = [image(n) for n in range(5)]
        follower.image_published(images[1], images[1].diff(images[0]))
        await asyncio.sleep(0)
        for n in (2, 3, 4):
            follower.image_published(images[n], images[n].diff(images[n - 1]))
        gate.set()
        await asyncio.wait_for(follower.settled(), 5)
        assert applied == [(1, 1), (4, 3)]
        assert follower.image.offset == 4
        running.cancel()

    asyncio.run(scenario())


def test_who_waits_is_told_when_an_image_cannot_be_applied() -> None:
    async def scenario() -> None:
        async def apply(new: MetadataImage, delta: MetadataDelta) -> None:
            raise OSError("no space left")

        follower = ImageSubscriber(image(0), apply)
        follower.image_published(image(1), image(1).diff(image(0)))
        waiting = asyncio.ensure_future(follower.settled())
        running = asyncio.ensure_future(follower.run())
        with pytest.raises(RuntimeError, match="no space left"):
            await asyncio.wait_for(waiting, 5)
        with pytest.raises(OSError, match="no space left"):
            await running

    asyncio.run(scenario())
