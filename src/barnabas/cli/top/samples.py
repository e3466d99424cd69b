"""The metrics of a node, asked for and read."""

from __future__ import annotations

import http.client
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Address = tuple[str, int]

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
TIMEOUT_S: Final = 5.0
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class NoMetricsError(Exception):
    """A node does not tell its metrics; the message is one line that says why."""


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float


class Snapshot(NamedTuple):
    """What one node told at a time."""

    node: str
    taken_s: float
    samples: Mapping[str, list[Sample]]

    def of(self, name: str, **labels: str) -> Iterator[Sample]:
        """The samples of a metric that have these labels."""
        wanted = labels.items()
        return (sample for sample in self.samples.get(name, ()) if wanted <= sample.labels.items())

    def total(self, name: str, **labels: str) -> float:
        return sum(sample.value for sample in self.of(name, **labels))

    def first(self, name: str, **labels: str) -> float | None:
        return next((sample.value for sample in self.of(name, **labels)), None)


def take(address: Address) -> Snapshot:
    """Raises NoMetricsError."""
    host, port = address
    where = f"{host}:{port}"
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read(ANSWER_BYTES_MAX).decode(errors="replace")
    except ConnectionRefusedError:
        raise NoMetricsError(f"nothing tells metrics at {where}") from None
    except TimeoutError:
        raise NoMetricsError(f"{where} does not answer within {TIMEOUT_S:g} s") from None
    except (OSError, http.client.HTTPException) as error:
        raise NoMetricsError(f"{where}: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise NoMetricsError(f"{where} answers with status {answer.status}: {text.splitlines()[:1]}")
    return Snapshot(where, time.monotonic(), read(text))


def take_all(addresses: Iterable[Address]) -> tuple[list[Snapshot], list[str]]:
    """Of all nodes at the same time: snapshots, and why others gave none."""
    taken: list[Snapshot] = []
    failures: list[str] = []
    with ThreadPoolExecutor(max_workers=16) as threads:
        for asked in [threads.submit(take, address) for address in addresses]:
            try:
                taken.append(asked.result())
            except NoMetricsError as failure:
                failures.append(str(failure))
    return taken, failures


def read(text: str) -> dict[str, list[Sample]]:
    """Prometheus's text form. Lines that are none of it are passed over."""
    found: dict[str, list[Sample]] = {}
    for line in text.splitlines():
        sample = None if line.startswith("#") else _SAMPLE.fullmatch(line)
        if sample is not None:
            try:
                value = float(sample[3])
            except ValueError:
                continue
            labels = {name: unescaped(text) for name, text in _LABEL.findall(sample[2] or "")}
            found.setdefault(sample[1], []).append(Sample(labels, value))
    return found


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text
