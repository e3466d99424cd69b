"""The process: processor time, memory and files, under the names that every Prometheus client uses."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Final

from barnabas.metrics.exposition import counter, gauge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metrics.exposition import Family

_PAGE_BYTES: Final = resource.getpagesize()


def process_families(started_s: float) -> Iterator[Family]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm", "rb") as statm:
        virtual_pages, resident_pages, *_ = map(int, statm.read().split())
    yield counter(
        "process_cpu_seconds_total",
        "processor time of the process, user and system",
        usage.ru_utime + usage.ru_stime,
    )
    yield gauge("process_resident_memory_bytes", "resident memory of the process", resident_pages * _PAGE_BYTES)
    yield gauge("process_virtual_memory_bytes", "address space of the process", virtual_pages * _PAGE_BYTES)
    yield gauge("process_open_fds", "open files and sockets", len(os.listdir("/proc/self/fd")))
    most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield gauge("process_max_fds", "how many files and sockets may be open", most_files)
    with open("/proc/self/io", encoding="ascii") as io:
        moved = dict(line.strip().split(": ") for line in io)
    for name in ("read_bytes", "write_bytes"):
        what = "that the device had to be asked for" if name == "read_bytes" else "that went to the device"
        yield gauge(f"kafka_server_kafkaserver_linux_disk_{name}", f"bytes {what}", int(moved[name]))
    yield gauge("process_start_time_seconds", "when the process was started, in seconds since 1970", started_s)
