"""Requests: how many of each API and version, how long in which phase, with which errors."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.metrics.exposition import COUNTER, SUMMARY, Family
from barnabas.net.request_metrics import PHASES, api_and_version, request_name
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.net.request_metrics import RequestMeter

K = TypeVar("K")

PREFIX: Final = "kafka_network_requestmetrics_"


def request_families(*meters: RequestMeter) -> Iterator[Family]:
    counts = Family(f"{PREFIX}requests_total", COUNTER, "requests that were received")
    asked = [{key: kind.count for key, kind in list(meter.kinds.items())} for meter in meters]
    for key, count in _summed(asked):
        api_key, version = api_and_version(key)
        counts.add(count, request=request_name(api_key), version=str(version))
    yield counts
    errors = Family(f"{PREFIX}errors_total", COUNTER, "answers, or parts of answers, by their error")
    for (api_key, code), count in _summed(meter.errors for meter in meters):
        errors.add(count, request=request_name(api_key), error=Error(code).name)
    yield errors
    phases = [Family(PREFIX + phase.lower(), SUMMARY, _explained(phase)) for phase in PHASES]
    for name, times in [each for meter in meters for each in list(meter.times.items())]:
        for family, histogram in zip(phases, times.by_phase(), strict=True):
            family.add_durations(histogram, request=name)
    yield from phases


def _summed(counters: Iterable[Mapping[K, int]]) -> list[tuple[K, int]]:
    """Counts of several loops, which serve some APIs both."""
    total: Counter[K] = Counter()
    for counter in counters:
        total.update(dict(list(counter.items())))
    return list(total.items())


def _explained(phase: str) -> str:
    return {
        "RequestQueueTimeMs": "milliseconds until a request that was received is handled",
        "LocalTimeMs": "milliseconds that handling takes",
        "RemoteTimeMs": "milliseconds of waiting for replicas, records or other members",
        "ThrottleTimeMs": "milliseconds that a quota holds an answer back",
        "ResponseQueueTimeMs": "milliseconds behind earlier answers of the same connection",
        "ResponseSendTimeMs": "milliseconds until the socket has taken an answer",
        "TotalTimeMs": "milliseconds from the arrival of a request until its answer was sent",
    }[phase]
