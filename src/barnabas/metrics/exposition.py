"""Families of samples, and the text format in which Prometheus reads them.

family = Family("kafka_server_replicamanager_partitioncount", GAUGE, "partitions that this broker hosts")
family.add(12)
"".join(render(family))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.metrics.histogram import Histogram

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
SUMMARY: Final = "summary"

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
QUANTILE_NAMES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""As the exporter's rules write Kafka's `99thPercentile`."""

Labels = tuple[tuple[str, str], ...]


class Family:
    """Everything of one name."""

    __slots__ = ("help", "kind", "name", "samples")

    def __init__(self, name: str, kind: str, explanation: str) -> None:
        self.name = name
        self.kind = kind
        self.help = explanation
        self.samples: list[tuple[str, Labels, float]] = []
        """Suffix of the name, labels, value."""

    def add(self, value: float, **labels: str) -> None:
        self.samples.append(("", tuple(labels.items()), value))

    def add_durations(self, histogram: Histogram, **labels: str) -> None:
        """A histogram as Kafka's are seen: percentiles in milliseconds, and how many there were."""
        pairs = tuple(labels.items())
        self.samples.append(("_count", pairs, histogram.count))
        self.samples.append(("_sum", pairs, round(histogram.sum_ns / 1e6, 3)))
        for name, value_ns in zip(QUANTILE_NAMES, histogram.quantiles_ns(QUANTILES), strict=True):
            self.samples.append(("", (*pairs, ("quantile", name)), round(value_ns / 1e6, 6)))


def gauge(name: str, explanation: str, value: float) -> Family:
    """One figure as it is now."""
    family = Family(name, GAUGE, explanation)
    family.add(value)
    return family


def counter(name: str, explanation: str, value: float) -> Family:
    """One figure that only grows."""
    family = Family(name, COUNTER, explanation)
    family.add(value)
    return family


def render(family: Family) -> Iterator[str]:
    """The lines of one family; nothing where it has no samples."""
    if not family.samples:
        return
    yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
    for suffix, labels, value in family.samples:
        yield f"{family.name}{suffix}{rendered(labels)} {number(value)}\n"


def render_all(families: Iterable[Family]) -> str:
    return "".join(line for family in families for line in render(family))


def rendered(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels) + "}"


def escaped(value: str) -> str:
    if "\\" not in value and '"' not in value and "\n" not in value:
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
