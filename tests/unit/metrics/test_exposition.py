"""The text in which Prometheus reads figures."""

from __future__ import annotations

from barnabas.metrics.exposition import COUNTER, GAUGE, SUMMARY, Family, render_all
from barnabas.metrics.histogram import Histogram


def test_a_family_has_its_type_and_a_line_for_each_sample() -> None:
    family = Family("kafka_server_x_total", COUNTER, "how many")
    family.add(3)
    family.add(1.5, topic="a", partition="0")
    assert render_all([family]) == (
        "# HELP kafka_server_x_total how many\n"
        "# TYPE kafka_server_x_total counter\n"
        "kafka_server_x_total 3\n"
        'kafka_server_x_total{topic="a",partition="0"} 1.5\n'
    )


def test_what_would_end_a_label_is_escaped() -> None:
    family = Family("x", GAUGE, "x")
    family.add(1, group='a"b\\c\nd')
    assert 'x{group="a\\"b\\\\c\\nd"} 1' in render_all([family])


def test_a_family_without_samples_is_not_there() -> None:
    assert render_all([Family("x", GAUGE, "x")]) == ""


def test_durations_are_a_summary_in_milliseconds() -> None:
    histogram = Histogram()
    histogram.add(2_000_000)
    family = Family("x", SUMMARY, "x")
    family.add_durations(histogram, request="Fetch")
    lines = render_all([family]).splitlines()
    assert 'x_count{request="Fetch"} 1' in lines
    (p99,) = [line for line in lines if 'quantile="0.99"' in line]
    assert abs(float(p99.split()[-1]) - 2.0) < 0.3
