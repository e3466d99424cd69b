"""Worker processes that die while they recompress cost neither records nor their order."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.adapter import Message, ProducerOptions, consume
from tests.clients.with_confluent import ConfluentClient
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import Peer, PeerKind

RECORDS = 400
KILLS = 5
PAUSE_S = 0.02
GROWTHS = 2


def workers_of(pid: int) -> Iterator[int]:
    """The worker processes of a node."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, (task / "children").read_text().split()):
                if b"worker_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                    yield child


class Killing:
    """Kills one worker after the other. A batch that is there whenever one dies is refused, so it waits each time until
    two batches were written: the first may have been on its way to the log before."""

    def __init__(self, node_pid: int, segment: Path) -> None:
        self.count = 0
        self._node_pid = node_pid
        self._segment = segment
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Killing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        size, growths = 0, 0
        while not self._is_over.wait(PAUSE_S):
            before, size = size, self._segment.stat().st_size
            growths += size > before
            if growths < GROWTHS:
                continue
            worker = next(workers_of(self._node_pid), None)
            if worker is not None:
                os.kill(worker, signal.SIGKILL)
                size, growths = self._segment.stat().st_size, 0
                self.count += 1


def test_killed_workers_neither_lose_repeat_nor_reorder_records(node: Peer, topic: str, peer_kind: PeerKind) -> None:
    if peer_kind == "kafka":
        pytest.skip("Kafka recompresses in its own process")
    client = ConfluentClient(node.bootstrap)
    client.create_topic(topic, config={"compression.type": "zstd", "compression.zstd.level": "12"})
    producer = client.producer(ProducerOptions(codec="lz4", idempotent=True))
    sent: list[Message] = []
    with Killing(node.pid, node.data_dir / f"{topic}-0" / "00000000000000000000.log") as killing:

        def has_killed_enough() -> bool:
            messages = [Message(b"%d " % (len(sent) + n) * 1_000, b"k") for n in range(RECORDS)]
            producer.send(topic, messages, 0)
            sent.extend(messages)
            return killing.count >= KILLS

        try:
            wait_until(has_killed_enough, f"{KILLS} workers were killed")
        finally:
            producer.close()
    received = consume(client, topic, len(sent))
    assert [each.offset for each in received] == list(range(len(sent)))
    assert [each.value for each in received] == [message.value for message in sent]
