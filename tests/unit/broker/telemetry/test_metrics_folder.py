"""What clients push is decoded, labelled and kept, within limits; what is no metrics is refused."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.telemetry import metrics_folder
from barnabas.broker.telemetry.client_instances import ClientAttributes
from barnabas.broker.telemetry.metrics_folder import MetricsFolder
from barnabas.broker.telemetry.otlp import decode_metrics
from barnabas.ports import SystemDisk
from barnabas.ports.processes import SystemProcesses
from barnabas.protocol.errors import DecodeError, Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GZIP = 1


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def sized(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def fixed(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + value.to_bytes(8, "little")


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def metrics_data(*metrics: bytes, resource: bytes = b"") -> bytes:
    scope = b"".join(sized(2, metric) for metric in metrics)
    return sized(1, sized(1, resource) + sized(2, scope))


A_SUM = sized(1, b"requests") + sized(
    7, sized(1, fixed(2, 5) + fixed(3, 9) + fixed(6, 2**64 - 3)) + b"\x10\x01" + b"\x18\x01"
)
A_HISTOGRAM = sized(1, b"latency") + sized(
    9,
    sized(
        1,
        fixed(4, 3)
        + double(5, 1.5)
        + sized(6, (1).to_bytes(8, "little") + (2).to_bytes(8, "little"))
        + sized(7, struct.pack("<d", 0.5)),
    ),
)


def client(instance: str = "an-instance") -> ClientAttributes:
    return ClientAttributes(instance, "c", "librdkafka", None, "127.0.0.1", "9")


def in_thread(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    return asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def test_metrics_are_decoded_to_the_json_of_otlp() -> None:
    resource = sized(1, sized(1, b"host") + sized(2, sized(1, b"here")))
    decoded = decode_metrics(metrics_data(A_SUM, A_HISTOGRAM, resource=resource))
    (of_resource,) = decoded["resourceMetrics"]
    assert of_resource["resource"] == {"attributes": [{"key": "host", "value": {"stringValue": "here"}}]}
    requests, latency = of_resource["scopeMetrics"][0]["metrics"]
    assert requests == {
        "name": "requests",
        "sum": {
            "dataPoints": [{"startTimeUnixNano": "5", "timeUnixNano": "9", "asInt": "-3"}],
            "aggregationTemporality": 1,
            "isMonotonic": True,
        },
    }
    point = {"count": "3", "sum": 1.5, "bucketCounts": ["1", "2"], "explicitBounds": [0.5]}
    assert latency == {"name": "latency", "histogram": {"dataPoints": [point]}}


def test_what_a_newer_client_adds_is_left_out_and_odd_numbers_are_told() -> None:
    point = double(4, float("nan")) + sized(99, b"new") + varint(98 << 3) + b"\x01" + varint(97 << 3 | 5) + bytes(4)
    decoded = decode_metrics(metrics_data(sized(1, b"g") + sized(5, sized(1, point))))
    assert decoded["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["gauge"] == {
        "dataPoints": [{"asDouble": "NaN"}]
    }


def nested(depth: int) -> bytes:
    value = sized(1, b"deep")
    for _ in range(depth):
        value = sized(5, sized(1, value))
    return metrics_data(resource=sized(1, sized(2, value)))


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 20,
        b"\x0a\x05\x01",
        b"\x0b\x00",
        b"\x08\x01",
        metrics_data(A_SUM)[:-1],
        metrics_data(sized(1, b"\xff")),
        metrics_data(sized(1, b"h") + sized(9, sized(1, sized(6, b"123")))),
        nested(100),
    ],
    ids=["number", "cut", "group", "type", "end", "text", "packed", "depth"],
)
def test_what_is_no_metrics_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_metrics(data)


def test_the_newest_push_of_each_client_is_kept_up_to_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_folder, "FILES_MAX", 2)
    folder = tmp_path / "deep" / "metrics"

    async def scenario() -> None:
        for start in range(2):
            receiver = MetricsFolder(str(folder), SystemDisk(), in_thread, SystemProcesses())
            for name in ("a", "b", "a", f"c{start}"):
                await receiver.keep(client(name), GZIP, gzip.compress(metrics_data(A_SUM)))

    asyncio.run(scenario())
    assert sorted(file.name for file in folder.iterdir()) == ["a.json", "c1.json"]
    kept = json.loads((folder / "a.json").read_text())
    attributes = kept["resourceMetrics"][0]["resource"]["attributes"]
    assert {each["key"]: each["value"]["stringValue"] for each in attributes} == {
        "client_instance_id": "a",
        "client_id": "c",
        "client_software_name": "librdkafka",
        "client_source_address": "127.0.0.1",
        "client_source_port": "9",
    }


def test_a_large_push_is_decoded_in_a_worker_process_and_one_that_expands_beyond_all_limits_is_refused(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        processes = SystemProcesses()
        receiver = MetricsFolder(str(tmp_path), SystemDisk(), in_thread, processes)
        try:
            await receiver.keep(client(), GZIP, gzip.compress(metrics_data(*[A_SUM] * 1000)))
            kept = json.loads((tmp_path / "an-instance.json").read_text())
            assert len(kept["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]) == 1000
            for data in (gzip.compress(bytes(20 * 1024 * 1024)), b"not gzip", gzip.compress(b"\xff")):
                with pytest.raises(KafkaError) as refused:
                    await receiver.keep(client(), GZIP, data)
                assert refused.value.error is Error.INVALID_RECORD
        finally:
            await processes.close()

    asyncio.run(scenario())


def test_a_folder_that_cannot_be_written_refuses_the_push(tmp_path: Path) -> None:
    (tmp_path / "metrics").write_text("a file, not a folder")

    async def scenario() -> None:
        receiver = MetricsFolder(str(tmp_path / "metrics"), SystemDisk(), in_thread, SystemProcesses())
        with pytest.raises(KafkaError) as refused:
            await receiver.keep(client(), 0, metrics_data(A_SUM))
        assert refused.value.error is Error.INVALID_RECORD

    asyncio.run(scenario())
