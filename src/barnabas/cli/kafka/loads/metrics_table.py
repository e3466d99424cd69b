"""`--print-metrics`: figures of a client under the names that they have in Java's clients, as far as they are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.cli.kafka.loads.java_format import fixed
from barnabas.cli.kafka.tool import KAFKA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = float | str


def print_metrics(group: str, client_id: str, figures: Mapping[str, Value]) -> None:
    tags = f"{{client-id={client_id}}}"
    rows: dict[str, Value] = {f"{group}:{name}:{tags}": value for name, value in figures.items()}
    rows[f"app-info:version:{tags}"] = KAFKA_VERSION
    width = max(map(len, rows))
    print(f"\n{'Metric Name':<{width}}   Value")
    for name in sorted(rows):
        value = rows[name]
        print(f"{name:<{width}} : {value if isinstance(value, str) else fixed(value, 3)}")


def of_traffic(statistics: Mapping[str, Any]) -> dict[str, Value]:
    """What librdkafka's statistics tell of requests and bytes."""
    brokers = statistics.get("brokers", {}).values()
    return {
        "connection-count": float(sum(each.get("state") == "UP" for each in brokers)),
        "incoming-byte-total": float(statistics.get("rx_bytes", 0)),
        "outgoing-byte-total": float(statistics.get("tx_bytes", 0)),
        "request-total": float(statistics.get("tx", 0)),
        "response-total": float(statistics.get("rx", 0)),
        "request-latency-avg": _average([each["rtt"] for each in brokers if "rtt" in each], 1_000),
    }


def of_batches(statistics: Mapping[str, Any]) -> dict[str, Value]:
    """What they tell of batches that were written."""
    topics = statistics.get("topics", {}).values()
    return {
        "batch-size-avg": _average([each["batchsize"] for each in topics if "batchsize" in each], 1),
        "records-per-request-avg": _average([each["batchcnt"] for each in topics if "batchcnt" in each], 1),
    }


def _average(windows: list[Mapping[str, float]], scale: float) -> float:
    count = sum(each["cnt"] for each in windows)
    return sum(each["sum"] for each in windows) / count / scale if count else float("nan")
