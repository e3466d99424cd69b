"""Where the metrics of clients are kept (`barnabas.client.telemetry.dir`): for each client instance a file with what it
has pushed last, `<client instance id>.json`, in OTLP's JSON.

A person reads it, and so does an OpenTelemetry collector. Files of clients that are gone stay until there are too
many. What is large is decoded in a worker process, and the rest in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from barnabas.broker.telemetry.otlp import push_as_json
from barnabas.broker.worker_tasks import run_in_worker
from barnabas.log.folder.checkpoints import replace_text
from barnabas.log.folder.deletion import unlink_if_there
from barnabas.ports.processes import WorkerError, WorkersBusyError
from barnabas.protocol.compression import NoRoomError
from barnabas.protocol.errors import DecodeError, Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.broker.telemetry.client_instances import ClientAttributes
    from barnabas.ports import Disk, Processes

logger = logging.getLogger("barnabas.telemetry")

FILES_MAX = 1000
SUFFIX = ".json"
SMALL_BYTES_MAX = 16 * 1024
"""A push that has no more, decompressed, is decoded in a thread. That takes a few milliseconds."""
DECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
DECODED_AT_ONCE = 2


class MetricsFolder:
    """To be used on the broker's event loop."""

    def __init__(
        self, path: str, disk: Disk, run_in_thread: Callable[..., Awaitable[Any]], processes: Processes
    ) -> None:
        self.path = path
        self._disk = disk
        self._run_in_thread = run_in_thread
        self._processes = processes
        self._names: dict[str, None] | None = None
        """The files, the one that was written last at the end; None before the folder was looked at."""
        self._decoding = asyncio.Semaphore(DECODED_AT_ONCE)
        self._writing = asyncio.Lock()

    async def keep(self, client: ClientAttributes, codec: int, metrics: bytes) -> None:
        """Raises KafkaError if the metrics cannot be read or written."""
        labels = tuple(client._asdict().items())
        try:
            async with self._decoding:
                text = await self._decode(codec, metrics, labels)
            async with self._writing:
                await self._write(client.client_instance_id + SUFFIX, text)
        except WorkersBusyError as error:
            raise KafkaError(Error.THROTTLING_QUOTA_EXCEEDED, f"metrics cannot be read now: {error}") from error
        except (DecodeError, WorkerError) as error:
            raise KafkaError(Error.INVALID_RECORD, str(error)) from error
        except OSError as error:
            logger.error("cannot keep the metrics of client %s: %s", client.client_instance_id, error)
            raise KafkaError(Error.INVALID_RECORD, f"metrics cannot be written: {error}") from error

    async def _decode(self, codec: int, metrics: bytes, labels: tuple[tuple[str, str | None], ...]) -> str:
        if len(metrics) <= SMALL_BYTES_MAX:
            try:
                text: str = await self._run_in_thread(push_as_json, codec, metrics, SMALL_BYTES_MAX, labels)
            except NoRoomError:
                pass
            else:
                return text
        return await run_in_worker(self._processes, push_as_json, codec, metrics, DECOMPRESSED_BYTES_MAX, labels)

    async def _write(self, name: str, text: str) -> None:
        if self._names is None:
            self._names = await self._run_in_thread(self._open)
        names = self._names
        names.pop(name, None)
        names[name] = None
        oldest = list(names)[: max(0, len(names) - FILES_MAX)]
        await self._run_in_thread(self._replace, name, text, oldest)
        for each in oldest:
            del names[each]

    def _open(self) -> dict[str, None]:
        disk = self._disk
        if not disk.exists(self.path):
            disk.make_folders(self.path)
        found = [name for name in disk.list_folder(self.path) if name.endswith(SUFFIX)]
        return dict.fromkeys(sorted(found, key=lambda name: disk.modified_ms(f"{self.path}/{name}")))

    def _replace(self, name: str, text: str, superfluous: list[str]) -> None:
        replace_text(self._disk, f"{self.path}/{name}", text)
        for each in superfluous:
            unlink_if_there(self._disk, f"{self.path}/{each}")
