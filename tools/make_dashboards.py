"""Writes the Grafana dashboards in `deploy/metrics/grafana`: `python -m tools.make_dashboards`, or `make docs`.

A dashboard is rows of panels, a panel is a title, a unit and what it plots. Grafana's JSON says the same in forty lines
for each panel, so nobody writes it by hand. The dashboards ask for nothing that Apache Kafka behind jmx_exporter does
not have under the same name, except in the panels whose metrics begin with `barnabas_` or `kafka_consumergroup_`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).parents[1] / "deploy" / "metrics" / "grafana"
WIDTH: Final = 24
HEIGHT: Final = 8
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
NODES: Final = '{instance=~"$instance"}'


class Plot(NamedTuple):
    expression: str
    legend: str = "{{instance}}"


class Panel(NamedTuple):
    title: str
    unit: str
    plots: tuple[Plot, ...]
    kind: str = "timeseries"
    explanation: str = ""


class Dashboard(NamedTuple):
    uid: str
    title: str
    rows: dict[str, tuple[Panel, ...]]


def stat(title: str, expression: str, explanation: str = "", unit: str = "short") -> Panel:
    return Panel(title, unit, (Plot(expression, ""),), "stat", explanation)


def by_request(metric: str, quantile: str) -> Plot:
    choice = f'{{instance=~"$instance",request=~"$request",quantile="{quantile}"}}'
    return Plot(f"max by (request) (kafka_network_requestmetrics_{metric}{choice})", "{{request}}")


CLUSTER: Final = Dashboard(
    "barnabas-cluster",
    "Barnabas: cluster",
    {
        "Is it well?": (
            stat("Active controllers", "sum(kafka_controller_kafkacontroller_activecontrollercount)", "One is right."),
            stat("Brokers that serve", "sum(kafka_controller_kafkacontroller_activebrokercount)"),
            stat("Fenced brokers", "sum(kafka_controller_kafkacontroller_fencedbrokercount)"),
            stat("Offline partitions", "sum(kafka_controller_kafkacontroller_offlinepartitionscount)"),
            stat("Under-replicated", "sum(kafka_server_replicamanager_underreplicatedpartitions)"),
            stat("Under min ISR", "sum(kafka_server_replicamanager_underminisrpartitioncount)"),
        ),
        "Throughput": (
            Panel(
                "Records in",
                "wps",
                (Plot('sum by (instance) (rate(kafka_server_brokertopicmetrics_messagesin_total{topic=""}[1m]))'),),
            ),
            Panel(
                "Bytes in",
                "Bps",
                (Plot('sum by (instance) (rate(kafka_server_brokertopicmetrics_bytesin_total{topic=""}[1m]))'),),
            ),
            Panel(
                "Bytes out",
                "Bps",
                (Plot('sum by (instance) (rate(kafka_server_brokertopicmetrics_bytesout_total{topic=""}[1m]))'),),
            ),
        ),
        "Replication": (
            Panel(
                "Partitions and leaders",
                "short",
                (
                    Plot("kafka_server_replicamanager_partitioncount", "{{instance}} hosts"),
                    Plot("kafka_server_replicamanager_leadercount", "{{instance}} leads"),
                ),
            ),
            Panel(
                "Replicas that leave (below) and join the in-sync ones",
                "ops",
                (
                    Plot("rate(kafka_server_replicamanager_isrexpands_total[5m])", "{{instance}} joins"),
                    Plot("-rate(kafka_server_replicamanager_isrshrinks_total[5m])", "{{instance}} leaves"),
                ),
            ),
            Panel(
                "Records that followers lack at most",
                "short",
                (Plot("max by (follower) (barnabas_follower_max_lag)", "follower {{follower}}"),),
            ),
            Panel(
                "Copied from other brokers",
                "Bps",
                (Plot("rate(kafka_server_brokertopicmetrics_replicationbytesin_total[1m])"),),
            ),
        ),
        "Metadata": (
            Panel("Topics", "short", (Plot("sum(kafka_controller_kafkacontroller_globaltopiccount)", "topics"),)),
            Panel(
                "Records of the metadata log that a replica lacks",
                "short",
                (Plot("barnabas_quorum_replica_lag", "{{kind}} {{replica}}"),),
            ),
            Panel(
                "Waiting for the controller (99 %)",
                "ms",
                (Plot('kafka_controller_controllereventmanager_eventqueuetimems{quantile="0.99"}'),),
            ),
            Panel("Epoch of the quorum", "short", (Plot("kafka_server_raft_metrics_current_epoch"),)),
        ),
    },
)

NODE: Final = Dashboard(
    "barnabas-node",
    "Barnabas: nodes",
    {
        "How busy": (
            Panel(
                "Idle share of the broker's event loop",
                "percentunit",
                (Plot(f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{NODES}"),),
                explanation="Below 0.2, requests begin to wait for each other.",
            ),
            Panel(
                "Longest turn of an event loop",
                "s",
                (Plot(f"barnabas_event_loop_longest_turn_seconds{NODES}", "{{instance}} {{loop}}"),),
            ),
            Panel("Processor", "percentunit", (Plot(f"rate(process_cpu_seconds_total{NODES}[1m])"),)),
            Panel("Resident memory", "bytes", (Plot(f"process_resident_memory_bytes{NODES}"),)),
        ),
        "Requests": (
            Panel(
                "Requests",
                "reqps",
                (
                    Plot(
                        "sum by (request) (rate(kafka_network_requestmetrics_requests_total"
                        '{instance=~"$instance",request=~"$request"}[1m]))',
                        "{{request}}",
                    ),
                ),
            ),
            Panel("Time in all, 50 %", "ms", (by_request("totaltimems", "0.50"),)),
            Panel("Time in all, 99 %", "ms", (by_request("totaltimems", "0.99"),)),
            Panel(
                "Refused, by error",
                "ops",
                (
                    Plot(
                        "sum by (request, error) (rate(kafka_network_requestmetrics_errors_total"
                        '{instance=~"$instance",error!="NONE"}[1m]))',
                        "{{request}} {{error}}",
                    ),
                ),
            ),
        ),
        "Where the time goes (99 %)": (
            Panel("Waiting for its turn", "ms", (by_request("requestqueuetimems", "0.99"),)),
            Panel("Being handled", "ms", (by_request("localtimems", "0.99"),)),
            Panel("Waiting for replicas, records or members", "ms", (by_request("remotetimems", "0.99"),)),
            Panel("Behind earlier answers", "ms", (by_request("responsequeuetimems", "0.99"),)),
            Panel("Being sent", "ms", (by_request("responsesendtimems", "0.99"),)),
            Panel("Held back by a quota", "ms", (by_request("throttletimems", "0.99"),)),
        ),
        "Connections and what waits": (
            Panel(
                "Connections",
                "short",
                (Plot(f"kafka_server_socket_server_metrics_connection_count{NODES}", "{{instance}} {{listener}}"),),
            ),
            Panel(
                "Clients by software",
                "short",
                (
                    Plot(
                        "sum by (clientSoftwareName, clientSoftwareVersion) "
                        f"(kafka_server_socket_server_metrics_connections{NODES})",
                        "{{clientSoftwareName}} {{clientSoftwareVersion}}",
                    ),
                ),
            ),
            Panel(
                "Requests that wait",
                "short",
                (
                    Plot(
                        "sum by (delayedOperation) "
                        f"(kafka_server_delayedoperationpurgatory_numdelayedoperations{NODES})",
                        "{{delayedOperation}}",
                    ),
                ),
            ),
            Panel(
                "Fetch sessions",
                "short",
                (Plot(f"kafka_server_fetchsessioncache_numincrementalfetchsessions{NODES}"),),
            ),
        ),
        "Disk": (
            Panel("Bytes of all logs", "bytes", (Plot(f"sum by (instance) (kafka_log_log_size{NODES})"),)),
            Panel(
                "Syncs, 99 %",
                "ms",
                (
                    Plot(
                        'kafka_log_logflushstats_logflushrateandtimems{instance=~"$instance",quantile="0.99"}',
                    ),
                ),
            ),
            Panel(
                "Read from and written to devices",
                "Bps",
                (
                    Plot(f"rate(kafka_server_kafkaserver_linux_disk_write_bytes{NODES}[1m])", "{{instance}} written"),
                    Plot(f"-rate(kafka_server_kafkaserver_linux_disk_read_bytes{NODES}[1m])", "{{instance}} read"),
                ),
            ),
            Panel(
                "Dirtiest log to be compacted",
                "percent",
                (Plot(f"kafka_log_logcleanermanager_max_dirty_percent{NODES}"),),
            ),
        ),
    },
)

TOPICS: Final = Dashboard(
    "barnabas-topics",
    "Barnabas: topics and groups",
    {
        "Topics": (
            Panel(
                "Records in",
                "wps",
                (
                    Plot(
                        'sum by (topic) (rate(kafka_server_brokertopicmetrics_messagesin_total{topic=~"$topic"}[1m]))',
                        "{{topic}}",
                    ),
                ),
            ),
            Panel(
                "Bytes in",
                "Bps",
                (
                    Plot(
                        'sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesin_total{topic=~"$topic"}[1m]))',
                        "{{topic}}",
                    ),
                ),
            ),
            Panel(
                "Bytes out",
                "Bps",
                (
                    Plot(
                        'sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesout_total{topic=~"$topic"}[1m]))',
                        "{{topic}}",
                    ),
                ),
            ),
            Panel(
                "Size on all brokers",
                "bytes",
                (Plot('sum by (topic) (kafka_log_log_size{topic=~"$topic"})', "{{topic}}"),),
            ),
        ),
        "Groups": (
            Panel(
                "Records to read",
                "short",
                (
                    Plot(
                        'sum by (group, topic) (kafka_consumergroup_lag{topic=~"$topic"})',
                        "{{group}} {{topic}}",
                    ),
                ),
            ),
            Panel(
                "Behind, in time",
                "s",
                (
                    Plot(
                        'max by (group, topic) (kafka_consumergroup_group_lag_seconds{topic=~"$topic"})',
                        "{{group}} {{topic}}",
                    ),
                ),
            ),
            Panel("Members", "short", (Plot("sum by (group) (kafka_consumergroup_members)", "{{group}}"),)),
            Panel(
                "Groups by state",
                "short",
                tuple(
                    Plot(f"sum(kafka_coordinator_group_groupmetadatamanager_numgroups{state})", state)
                    for state in ("stable", "empty", "preparingrebalance", "completingrebalance", "dead")
                ),
            ),
        ),
        "Transactions": (
            Panel(
                "Transactional ids by state",
                "short",
                (Plot("sum by (state) (barnabas_transactional_ids)", "{{state}}"),),
            ),
            Panel(
                "Records that wait for the end of a transaction",
                "short",
                (
                    Plot(
                        'sum by (topic) (kafka_cluster_partition_laststableoffsetlag{topic=~"$topic"}) > 0', "{{topic}}"
                    ),
                ),
            ),
            Panel(
                "Producers that partitions know",
                "short",
                (Plot("kafka_server_replicamanager_produceridcount"),),
            ),
        ),
    },
)

DASHBOARDS: Final = (CLUSTER, NODE, TOPICS)

CHOICES: Final = {
    "instance": "label_values(process_start_time_seconds, instance)",
    "request": "label_values(kafka_network_requestmetrics_requests_total, request)",
    "topic": "label_values(kafka_log_log_size, topic)",
}
"""Variables at the top of a dashboard that uses them."""


def as_json(dashboard: Dashboard) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for row, members in dashboard.rows.items():
        panels.append(
            {
                "type": "row",
                "title": row,
                "id": len(panels) + 1,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            }
        )
        top += 1
        height = HEIGHT // 2 if members[0].kind == "stat" else HEIGHT
        width = WIDTH // len(members)
        for number, panel in enumerate(members):
            place = {"x": number * width, "y": top, "w": width, "h": height}
            panels.append(panel_as_json(panel, len(panels) + 1, place))
        top += height
    texts = [plot.expression for row in dashboard.rows.values() for panel in row for plot in panel.plots]
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["barnabas", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                *(
                    choice_as_json(name, query)
                    for name, query in CHOICES.items()
                    if any(f"${name}" in text for text in texts)
                ),
            ]
        },
        "panels": panels,
    }


def panel_as_json(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.explanation,
        "id": number,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if panel.kind != "stat" else {},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": plot.expression, "legendFormat": plot.legend}
            for index, plot in enumerate(panel.plots)
        ],
    }


def choice_as_json(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def text_of(dashboard: Dashboard) -> str:
    return json.dumps(as_json(dashboard), indent=2) + "\n"


def file_of(dashboard: Dashboard) -> Path:
    return FOLDER / f"{dashboard.uid.removeprefix('barnabas-')}.json"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        file_of(dashboard).write_text(text_of(dashboard))


if __name__ == "__main__":
    main()
