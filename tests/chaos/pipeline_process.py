"""A Spark pipeline that makes one new record of each, in a process that a test kills.

    pipeline = PipelineProcess(PipelineOptions(bootstrap, group, source, sink, checkpoint), log)
    …
    pipeline.kill()

Every record keeps its partition, and a record's output is a function of the record alone: so the test can say what the
sink must hold to the last record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench import procfs

from tests.peers import SHORT_LIVED, wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

END_S_MAX = 60.0
ROWS_PER_TRIGGER = 400
"""So that there is always a batch that is under way, and the next."""
TASK_FAILURES_MAX = 4


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    bootstrap: str
    group: str
    source: str
    sink: str
    checkpoint: str
    scratch: str


class PipelineProcess:
    """The test's side: the driver with its JVM, and the Python processes that the JVM starts."""

    def __init__(self, options: PipelineOptions, log: Path) -> None:
        self._log = log
        self._seen: dict[int, int] = {}
        """The processes under the driver, and when each was started."""
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.pipeline_process", json.dumps(dataclasses.asdict(options))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        return self._process.poll() is None

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]

    def kill(self) -> None:
        """Driver and JVM at once. Their workers notice in their own time, and are zombies until then."""
        self._note(procfs.descendants(self._process.pid))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_S_MAX)

    def kill_a_worker(self, chance: random.Random) -> bool:
        """Any of the Python processes under the JVM; whether there was one."""
        workers = [pid for pid in procfs.descendants(self._process.pid) if _is_python(pid)]
        self._note(workers)
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(workers), signal.SIGKILL)
        return bool(workers)

    def end(self) -> int:
        """Ask it to end after the batch that it is in; its exit code."""
        self._note(procfs.descendants(self._process.pid))
        self._process.terminate()
        return self._process.wait(END_S_MAX)

    def await_end_of_workers(self) -> None:
        """Those that lost their JVM end by themselves."""

        def none_is_left() -> bool:
            return not any(started == procfs.start_ticks(pid) for pid, started in self._seen.items())

        wait_until(none_is_left, "no worker is left", END_S_MAX)

    def _note(self, pids: Iterable[int]) -> None:
        started = {pid: procfs.start_ticks(pid) for pid in pids}
        self._seen |= {pid: ticks for pid, ticks in started.items() if ticks is not None}


def _is_python(pid: int) -> bool:
    try:
        return b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes() and b"java" not in _name(pid)
    except (FileNotFoundError, ProcessLookupError):
        return False


def _name(pid: int) -> bytes:
    return Path(f"/proc/{pid}/comm").read_bytes()


def main(options: PipelineOptions) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    import barnabas.spark

    is_asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_asked_to_stop.set())
    settings = {**SHORT_LIVED, "spark.local.dir": options.scratch, "spark.driver.memory": "1g"}
    spark = barnabas.spark.session("chaos", master=f"local[2,{TASK_FAILURES_MAX}]", settings=settings)
    servers = {"kafka.bootstrap.servers": options.bootstrap}
    rows = (
        spark.readStream.format("barnabas")
        .options(**servers, subscribe=options.source, startingOffsets="earliest")
        .option("kafka.group.id", options.group)
        .option("maxOffsetsPerTrigger", ROWS_PER_TRIGGER)
        .load()
    )
    # What `loop_process.output_of` makes of a record.
    doubled = (2 * F.col("value").cast("string").cast("long")).cast("string").cast("binary")
    query = (
        rows.select(doubled.alias("value"), "partition")
        .writeStream.format("barnabas")
        .options(**servers, topic=options.sink, checkpointLocation=options.checkpoint)
        .start()
    )
    while query.isActive and not is_asked_to_stop.wait(0.1):
        pass
    query.stop()
    if (failure := query.exception()) is not None:
        raise failure
    spark.stop()


if __name__ == "__main__":
    main(PipelineOptions(**json.loads(sys.argv[1])))
