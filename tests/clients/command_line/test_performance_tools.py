"""The tools that measure, on a real node. But for their figures, the lines are what Apache Kafka 4.3.1 prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.clients.command_line.kafka_tool import Done, KafkaTool, run_tool

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.with_confluent import ConfluentClient
    from tests.peers import Peer

FIGURE = re.compile(r"(?<![\w.])(?:\d+(?:\.\d+)?|NaN)(?![\w.])")
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}")
TOTAL = (
    "N records sent, N records/sec (N MB/sec), N ms avg latency, N ms max latency, "
    "N ms 50th, N ms 95th, N ms 99th, N ms 99.9th."
)
COLUMNS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
POSITIONAL = "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0."


@pytest.fixture
def writer(group_node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-producer-perf-test", group_node, capsys)


@pytest.fixture
def reader(group_node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-consumer-perf-test", group_node, capsys)


@pytest.fixture
def latency(group_node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-e2e-latency", group_node, capsys)


@pytest.fixture
def made(topic: str, group_confluent: ConfluentClient) -> str:
    group_confluent.create_topic(topic, 3)
    return topic


def masked(text: str) -> list[str]:
    return [FIGURE.sub("N", TIME.sub("T", line)) for line in text.splitlines()]


def record_count(client: ConfluentClient, topic: str, partitions: int = 3) -> int:
    return sum(client.offset_range(topic, partition)[1] for partition in range(partitions))


def load(topic: str, count: int, *payload: str, throughput: str = "-1") -> list[str]:
    return [
        "--topic",
        topic,
        "--num-records",
        str(count),
        "--throughput",
        throughput,
        *(payload or ("--record-size", "100")),
    ]


def test_as_many_records_are_written_as_are_asked_for(
    writer: KafkaTool, made: str, group_confluent: ConfluentClient
) -> None:
    printed = writer.printed(*load(made, 12_345))
    assert masked(printed) == [TOTAL]
    assert printed.startswith("12345 records sent, ")
    assert record_count(group_confluent, made) == 12_345


def test_latencies_are_those_of_single_records_at_a_rate(writer: KafkaTool, made: str) -> None:
    words = load(made, 300, throughput="1000")
    lines = writer.printed(*words, "--warmup-records", "100", "--reporting-interval", "50").splitlines()
    assert lines[0] == "Warmup first 100 records. Steady state results will print after the complete test summary."
    assert "In steady state." in lines
    assert lines[-2].startswith("300 records sent, ")
    assert lines[-1].startswith("200 steady state records sent, ")
    rate = float(lines[-2].split()[3])
    assert 50 < rate < 1_050
    median, highest = (int(re.search(rf"(\d+) ms {share}", lines[-1])[1]) for share in ("50th", "99.9th"))  # type: ignore[index]
    assert 0 <= median <= highest


def test_values_come_from_a_file_or_are_numbers(
    writer: KafkaTool, topic: str, group_confluent: ConfluentClient, tmp_path: Path
) -> None:
    group_confluent.create_topic(topic)
    assert masked(writer.printed(*load(topic, 3, "--payload-monotonic"), "--transactional-id", topic)) == [TOTAL]
    file = tmp_path / "values"
    file.write_text("one|two|")
    from_file = load(topic, 4, "--payload-file", str(file))
    assert masked(writer.printed(*from_file, "--payload-delimiter", "|"))[:2] == [
        masked(f"Reading payloads from: {file}")[0],
        "Number of records read: N",
    ]
    with group_confluent.consumer(topic, "beginning") as consumer:
        values = [each.value for each in consumer.receive(7)]
    assert values[:3] == [b"0", b"1", b"2"]
    assert set(values[3:]) <= {b"one", b"two"}


def test_what_the_producer_cannot_send_does_not_count(writer: KafkaTool, made: str) -> None:
    large = writer(*load(made, 2, "--record-size", "2000000"))
    too_large = (
        "org.apache.kafka.common.errors.RecordTooLargeException: The message is 2000088 bytes when serialized which is "
        "larger than 1048576, which is the value of the max.request.size configuration."
    )
    assert (large.code, large.err.splitlines()) == (0, [too_large] * 2)
    assert large.out.startswith("0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms avg latency, 0.00 ms max")
    refused = writer(*load("not a topic", 1))
    assert refused.err.splitlines()[-1] == (
        "org.apache.kafka.common.errors.InvalidTopicException: Invalid topics: [not a topic]"
    )


def test_figures_of_the_producer_have_the_names_of_java(writer: KafkaTool, made: str) -> None:
    lines = writer.printed(
        *load(made, 10), "--print-metrics", "--command-property", "acks=1", "client.id=me"
    ).splitlines()
    assert lines[1:2] + lines[2].split() == ["", "Metric", "Name", "Value"]
    assert "producer-metrics:record-send-total:{client-id=me}" in "\n".join(lines)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--num-records", "0", "--record-size", "1"], "--num-records should be greater than zero."),
        (["--num-records", "1", "--record-size", "0"], "--record-size should be greater than zero."),
        (["--num-records", "1"], "one of the arguments --record-size --payload-file --payload-monotonic is required"),
        (
            ["--num-records", "1", "--record-size", "1", "--payload-monotonic"],
            "argument --payload-monotonic: not allowed with argument --record-size",
        ),
        (
            ["--num-records", "x", "--record-size", "1"],
            "argument --num-records: could not convert 'x' to Long (For input string: \"x\")",
        ),
        (
            ["--num-records", "1", "--record-size", "1", "--warmup-records", "1"],
            (
                "The value for --warmup-records must be strictly fewer than the number of records in the test, "
                "--num-records."
            ),
        ),
        (
            ["--num-records", "1", "--record-size", "1", "--transaction-duration-ms", "0"],
            "--transaction-duration-ms should be greater than zero.",
        ),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(writer: KafkaTool, topic: str, words: list[str], complaint: str) -> None:
    refused = writer("--topic", topic, "--throughput", "-1", *words)
    assert (refused.code, refused.out, refused.complaint) == (1, "", f"kafka-producer-perf-test: error: {complaint}")


def test_older_names_of_flags_are_said_to_be_older(
    group_node: Peer, made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    props = ("--producer-props", f"bootstrap.servers={group_node.bootstrap}", "acks=1")
    done = run_tool(capsys, "kafka-producer-perf-test", *load(made, 1), *props)
    assert masked(done.out) == [
        (
            "Option --producer-props has been deprecated and will be removed in a future version. "
            "Use --command-property instead."
        ),
        TOTAL,
    ]


def test_records_are_read_and_counted(writer: KafkaTool, reader: KafkaTool, made: str) -> None:
    writer.printed(*load(made, 5_000))
    header, figures = reader.printed("--topic", made, "--num-records", "5000").splitlines()
    assert header == f"start.time, end.time, {COLUMNS}"
    assert masked(figures) == ["T, T, N, N, N, N, N, N, N, N"]
    assert figures.split(", ")[2] == "0.4768"
    assert figures.split(", ")[4] == "5000"
    shown = reader.printed("--include", f"{made}.*", "--messages", "5000", "--hide-header", "--date-format", "yyyy")
    assert re.fullmatch(
        r"Warning: --messages is deprecated\. Use --num-records instead\.\n\d{4}, \d{4}, 0\.4768, .*\n", shown
    )


def test_a_reader_to_whom_nothing_comes_says_so(reader: KafkaTool, made: str, writer: KafkaTool) -> None:
    writer.printed(*load(made, 100))
    words = ("--topic", made, "--num-records", "101", "--timeout", "1500")
    detailed = reader.printed(*words, "--show-detailed-stats", "--reporting-interval", "1").splitlines()
    assert detailed[0] == f"time, threadId, {COLUMNS}"
    assert masked(detailed[1])[0] == "T, N, N, N, N, N, N, N, N, N"
    assert detailed[-1] == (
        "WARNING: Exiting before consuming the expected number of records: timeout (1500 ms) exceeded. "
        "You can use the --timeout option to increase the timeout."
    )
    assert "consumer-fetch-manager-metrics:records-consumed-total:" in reader.printed(
        "--topic", made, "--num-records", "100", "--print-metrics"
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--num-records", "1"], "Exactly one of the following arguments is required: [topic], [include]"),
        (["--topic", "t"], "Exactly one of the following arguments is required: [messages], [num-records]"),
        (["--topic", "t", "--num-records", "x"], "Cannot parse argument 'x' of option num-records"),
        (["--topic", "t", "--num-records", "1", "--date-format", "q"], "Illegal pattern character 'q'"),
        (
            ["--topic", "t", "--num-records", "1", "--reporting-interval", "0"],
            "Reporting interval must be greater than 0.",
        ),
        (["--topic", "t", "--num-records", "1", "--command-config", "/nonexistent"], "/nonexistent"),
    ],
)
def test_a_reader_that_makes_no_sense_is_refused(reader: KafkaTool, words: list[str], complaint: str) -> None:
    refused = reader(*words)
    assert (refused.code, refused.complaint) == (1, complaint)


def measured(done: Done) -> list[str]:
    assert done.code == 0, done.err
    return masked(done.out)


def test_records_go_from_end_to_end(
    latency: KafkaTool, group_node: Peer, made: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = ["N\tN", "Avg latency: N ms", "Percentiles: 50th = N, 99th = N, 99.9th = N"]
    sized = ("--record-size", "10", "--record-key-size", "4", "--num-headers", "2", "--record-header-key-size", "3")
    assert measured(latency("--topic", made, "--num-records", "5", "--producer-acks", "1", *sized)) == figures
    positional = measured(run_tool(capsys, "kafka-e2e-latency", group_node.bootstrap, f"{topic}-new", "2", "all", "10"))
    assert positional[0].startswith(POSITIONAL)
    assert positional[1] == (
        'Topic "topic-N-new" does not exist. Will create topic with N partition(s) and replication factor = N'
    )
    assert positional[2:] == figures


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["--producer-acks", "0", "--num-records", "1", "--record-size", "1"],
            (
                "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. "
                "Please use '1' or 'all'."
            ),
        ),
        (
            ["--producer-acks", "1", "--num-records", "0", "--record-size", "1"],
            "Value for --num-records must be a positive integer.",
        ),
        (["--producer-acks", "1", "--num-records", "1"], 'Missing required argument "[record-size]"'),
    ],
)
def test_a_measurement_that_makes_no_sense_is_refused(latency: KafkaTool, words: list[str], complaint: str) -> None:
    refused = latency("--topic", "t", *words)
    assert (refused.code, refused.out, refused.complaint) == (1, "", complaint)


def test_words_in_a_row_are_five_or_six(capsys: pytest.CaptureFixture[str]) -> None:
    refused = run_tool(capsys, "kafka-e2e-latency", "localhost:1", "t")
    assert (refused.code, refused.complaint) == (
        1,
        (
            "Invalid number of arguments. Expected 5 or 6 positional arguments, but got 2. Usage: bootstrap-server "
            "topic num-records producer-acks record-size [optional] command-config"
        ),
    )
