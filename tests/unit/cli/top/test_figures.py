"""What `barnabas top` makes of the metrics of nodes."""

from __future__ import annotations

import pytest
from rich.console import Console

from barnabas.cli.top.figures import figures
from barnabas.cli.top.samples import Snapshot, read
from barnabas.cli.top.screen import History, picture, plain, short, short_bytes

BEFORE = """
kafka_network_requestmetrics_requests_total{request="Produce",version="12"} 100
kafka_network_requestmetrics_errors_total{request="Produce",error="NONE"} 100
kafka_server_brokertopicmetrics_messagesin_total 1000
kafka_server_brokertopicmetrics_messagesin_total{topic="a"} 1000
process_cpu_seconds_total 1
"""
NOW = """
# HELP something that is passed over
kafka_network_requestmetrics_requests_total{request="Produce",version="12"} 140
kafka_network_requestmetrics_errors_total{request="Produce",error="NONE"} 130
kafka_network_requestmetrics_errors_total{request="Produce",error="INVALID_RECORD"} 10
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.50"} 1.5
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 7
kafka_network_requestmetrics_totaltimems_count{request="Produce"} 140
kafka_server_brokertopicmetrics_messagesin_total 3000
kafka_server_brokertopicmetrics_messagesin_total{topic="a"} 3000
kafka_log_log_size{topic="a",partition="0"} 10
kafka_log_log_size{topic="a",partition="1"} 20
kafka_consumergroup_lag{group="g \\"1\\"",topic="a",partition="0"} 5
kafka_consumergroup_lag{group="g \\"1\\"",topic="a",partition="1"} 7
kafka_consumergroup_group_lag_seconds{group="g \\"1\\"",topic="a",partition="1"} 2.5
kafka_consumergroup_members{group="g \\"1\\""} 2
kafka_controller_kafkacontroller_activecontrollercount 1
kafka_server_replicamanager_underreplicatedpartitions 3
process_cpu_seconds_total 2
"""


def snapshot(node: str, taken_s: float, text: str) -> Snapshot:
    return Snapshot(node, taken_s, read(text))


def test_rates_are_of_the_time_between_and_of_all_nodes() -> None:
    found = figures(
        [snapshot("one", 10.0, BEFORE), snapshot("two", 10.0, BEFORE)],
        [snapshot("one", 12.0, NOW), snapshot("two", 12.0, NOW)],
        ["three is not there"],
    )
    assert found.throughput.records_in == 2 * 1000
    assert found.throughput.requests == 2 * 20
    assert found.throughput.errors == 2 * 5
    (produce,) = found.requests
    assert (produce.request, produce.per_second, produce.p50_ms, produce.p99_ms) == ("Produce", 40, 1.5, 7)
    (topic,) = found.topics
    assert (topic.topic, topic.records_in, topic.size_bytes) == ("a", 2000, 60)
    assert [line.processors for line in found.nodes] == [0.5, 0.5]
    assert (found.active_controllers, found.under_replicated) == (2, 6)
    assert found.missing == ("three is not there",)


def test_lag_is_that_of_a_group_on_a_topic() -> None:
    (line,) = figures([], [snapshot("one", 1.0, NOW)]).groups
    assert tuple(line) == ('g "1"', "a", 12, 2.5, 2)


def test_a_node_that_was_started_again_has_no_negative_rates() -> None:
    found = figures([snapshot("one", 1.0, NOW)], [snapshot("one", 2.0, BEFORE)])
    assert set(found.throughput) == {0.0}
    assert found.nodes[0].processors == 0


@pytest.mark.parametrize(("width", "height"), [(200, 60), (100, 30), (80, 24), (40, 10), (10, 3)])
def test_a_picture_fills_a_terminal_of_any_size_and_no_more(width: int, height: int) -> None:
    found = figures([snapshot("one", 1.0, BEFORE)], [snapshot("one", 2.0, NOW)], ["two is not there"])
    history = History()
    history.points.append(found.throughput)
    console = Console(width=width, height=height, record=True, file=None, force_terminal=True, quiet=True)
    lines = console.render_lines(picture(found, history, "top", width=width, height=height))
    assert len(lines) == height
    assert {sum(len(segment.text) for segment in line) for line in lines} == {width}


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1.25, "1.2"), (999, "999"), (9999, "9999"), (10_000, "10 k"), (12_345_678, "12.3 M")]
)
def test_figures_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_bytes_have_their_unit_and_milliseconds_three_digits() -> None:
    assert (short_bytes(5), short_bytes(46_342_144)) == ("5 B", "46.3 MB")
    assert [plain(value) for value in (0.123, 1.234, 12.34, 123.4)] == ["0.12", "1.23", "12.3", "123"]
