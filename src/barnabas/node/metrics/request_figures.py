"""Requests: how many of each API and version, how long in which phase, with which errors."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.metrics.exposition import COUNTER, SUMMARY, Family, counter
from barnabas.net.request_metrics import PHASES, api_and_version, request_name
from barnabas.node.metrics.broker_figures import TOPIC_METRICS
from barnabas.protocol.api import ApiKey
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


def data_request_families(meter: RequestMeter) -> Iterator[Family]:
    """What BrokerTopicMetrics counts of requests, from what is counted of them anyway."""
    for name, api_key in (("produce", ApiKey.PRODUCE), ("fetch", ApiKey.FETCH)):
        asked = sum(kind.count for key, kind in list(meter.kinds.items()) if api_and_version(key)[0] == api_key)
        failed = sum(
            count for (key, code), count in list(meter.errors.items()) if key == api_key and code != Error.NONE
        )
        yield counter(f"{TOPIC_METRICS}total{name}requests_total", f"{name} requests that were received", asked)
        yield counter(
            f"{TOPIC_METRICS}failed{name}requests_total", f"partitions in {name} requests that were refused", failed
        )


def _summed(counters: Iterable[Mapping[K, int]]) -> list[tuple[K, int]]:
    """Counts of several loops, which serve some APIs both."""
    total: Counter[K] = Counter()
    for each in counters:
        total.update(dict(list(each.items())))
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
