"""`kafka-console-producer` and `kafka-console-consumer` as tutorials type them, on a real node.

The expected texts are what Apache Kafka 4.3.1 printed, but for what a consumer without a group leaves behind: nothing.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from barnabas.cli.main import main
from tests.clients.command_line.kafka_tool import Done, KafkaTool, run_tool
from tests.clients.command_line.terminal import END_OF_INPUT, INTERRUPT, START, Terminal, at_terminal
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import Peer

PRODUCER, CONSUMER = "kafka-console-producer", "kafka-console-consumer"
KIP_848: Final = (
    "The consumer rebalance protocol (KIP-848) is production-ready! Set group.protocol=consumer to try it out. See "
    "https://kafka.apache.org/documentation/#consumer_rebalance_protocol\n"
)
COMMAND: Final = [sys.executable, "-P", "-c", START, "kafka"]
DEADLINE_S: Final = 30
OFFSETS_FORMATTERS: Final = (
    "org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
    "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter",
    r"kafka.coordinator.group.GroupMetadataManager\$OffsetsMessageFormatter",
)
BAD_OFFSET: Final = (
    "The provided offset value '-5' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."
)
BAD_ISOLATION: Final = (
    "org.apache.kafka.common.config.ConfigException: Invalid value foo for configuration isolation.level: "
    "String must be one of: read_committed, read_uncommitted"
)
SECOND: Final = ["--timeout-ms", "700"]


@pytest.fixture
def topics(group_node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-topics", group_node, capsys)


@pytest.fixture
def groups(group_node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-consumer-groups", group_node, capsys)


@pytest.fixture
def consumer(group_node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool(CONSUMER, group_node, capsys)


def produce(node: Peer, topic: str, given: str, *words: str) -> Done:
    """What is piped into a producer, from another command or a file."""
    done = subprocess.run(
        [*COMMAND, PRODUCER, "--bootstrap-server", node.bootstrap, "--topic", topic, *words],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def consuming(node: Peer, *words: str) -> Iterator[Terminal]:
    with at_terminal(CONSUMER, "--bootstrap-server", node.bootstrap, *words) as terminal:
        yield terminal


def test_lines_are_typed_at_one_terminal_and_read_at_another(group_node: Peer, topics: KafkaTool, topic: str) -> None:
    topics.printed("--create", "--topic", topic)
    words = ["--topic", topic, "--from-beginning"]
    producer_words = ["--broker-list", group_node.bootstrap, "--topic", topic, "--producer-property", "acks=all"]
    with consuming(group_node, *words) as reader, at_terminal(PRODUCER, *producer_words) as writer:
        writer.wait_for(">")
        writer.type("hello\n")
        writer.wait_for("hello\n>")
        writer.type("world\n")
        reader.wait_for("hello\nworld\n")
        writer.wait_for("world\n>")
        writer.type(END_OF_INPUT)
        assert writer.end() == 0
        assert writer.seen == (
            "Warning: --producer-property is deprecated and will be removed in a future version. "
            "Use --command-property instead.\n>hello\n>world\n>"
        )
        reader.type(INTERRUPT)
        assert reader.end() == 130
        assert reader.seen == f"{KIP_848}hello\nworld\n^CProcessed a total of 2 messages\n"


def test_what_was_typed_before_an_interrupt_arrives(
    group_node: Peer, topics: KafkaTool, consumer: KafkaTool, topic: str
) -> None:
    topics.printed("--create", "--topic", topic)
    with at_terminal(PRODUCER, "--bootstrap-server", group_node.bootstrap, "--topic", topic) as writer:
        writer.wait_for(">")
        writer.type("whole\n")
        writer.wait_for("whole\n>")
        writer.type("half")
        writer.wait_for("half")
        writer.type(INTERRUPT)
        assert writer.end() == 130
        assert writer.seen == ">whole\n>half^C"
    read = consumer("--topic", topic, "--from-beginning", *SECOND)
    assert (read.code, read.out) == (0, "whole\n")
    assert re.sub(r"^\[.*?\]", "[T]", read.err.removeprefix(KIP_848)) == (
        "[T] ERROR Error processing message, terminating consumer process:  "
        "(org.apache.kafka.tools.consumer.ConsoleConsumer)\n"
        "org.apache.kafka.common.errors.TimeoutException\n"
        "Processed a total of 1 messages\n"
    )


def test_in_a_pipe_nobody_is_prompted(group_node: Peer, topics: KafkaTool, consumer: KafkaTool, topic: str) -> None:
    topics.printed("--create", "--topic", topic)
    assert produce(group_node, topic, "a\r\n\nc") == (0, "", "")
    assert consumer.printed("--topic", topic, "--from-beginning", "--max-messages", "3") == "a\n\nc\n"


def test_without_from_beginning_only_what_comes_later_is_read(group_node: Peer, topics: KafkaTool, topic: str) -> None:
    topics.printed("--create", "--topic", topic, "--partitions", "2")
    produce(group_node, topic, "early\n")
    with consuming(group_node, "--topic", topic, "--command-property", "fetch.max.wait.ms=100") as reader:
        reader.wait_for(KIP_848)
        wait_until(lambda: produce(group_node, topic, "late\n").code == 0 and looked(reader, "late"), "late is read")
        reader.type(INTERRUPT)
        assert reader.end() == 130
        assert "early" not in reader.seen


def looked(reader: Terminal, text: str) -> bool:
    reader.look()
    return text in reader.seen


def test_three_of_a_group_share_three_partitions_and_go_on_with_what_they_missed(
    group_node: Peer, topics: KafkaTool, groups: KafkaTool, topic: str, group: str
) -> None:
    topics.printed("--create", "--topic", topic, "--partitions", "3")
    words = ["--topic", topic, "--group", group, "--from-beginning", "--formatter-property", "print.partition=true"]
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    lines = "".join(f"{number}:{number}\n" for number in range(12))
    with (
        consuming(group_node, *words) as one,
        consuming(group_node, *words) as two,
        consuming(group_node, *words) as three,
    ):
        members = (one, two, three)
        wait_until(lambda: members_of(groups, group) == [1, 1, 1], "each has a partition")
        produce(group_node, topic, lines, *keyed)
        wait_until(lambda: lines_read(members) == 12, "all is read")
        partitions = [set(re.findall(r"Partition:(\d)", each.seen)) for each in members]
        assert sorted(map(sorted, partitions)) == [["0"], ["1"], ["2"]]
        for each in members:
            each.type(INTERRUPT)
            assert each.end() == 130
    assert members_of(groups, group) == []

    produce(group_node, topic, "a:missed\nb:missed too\nz:missed as well\n", *keyed)
    with consuming(group_node, *words) as again:
        wait_until(lambda: lines_read([again]) == 3, "what was missed is read")
        again.type(INTERRUPT)
        assert again.end() == 130
        assert "Processed a total of 3 messages" in again.seen
    assert {row.split()[5] for row in groups.printed("--describe", "--group", group).splitlines()[2:]} == {"0"}


def members_of(groups: KafkaTool, group: str) -> list[int]:
    """How many partitions each member has; as long as the group is not stable, nobody counts."""
    done = groups("--describe", "--group", group, "--members")
    state = groups("--describe", "--group", group, "--state").out
    rows = [line.split() for line in done.lines if line.startswith(group)]
    return [int(row[4]) for row in rows] if "Stable" in state else []


def lines_read(terminals: list[Terminal] | tuple[Terminal, ...]) -> int:
    for each in terminals:
        each.look()
    return sum(each.seen.count("Partition:") for each in terminals)


def test_a_group_goes_on_where_it_began_though_nothing_came(
    group_node: Peer, topics: KafkaTool, consumer: KafkaTool, topic: str, group: str
) -> None:
    topics.printed("--create", "--topic", topic)
    for protocol in ("classic", "consumer"):
        words = ["--topic", topic, "--group", f"{group}-{protocol}", "--command-property", f"group.protocol={protocol}"]
        assert consumer.printed(*words, "--timeout-ms", "1500") == ""
        produce(group_node, topic, "meanwhile\n")
        assert consumer.printed(*words, "--max-messages", "1", "--timeout-ms", "9000") == "meanwhile\n"


def test_what_was_not_printed_is_not_committed(
    group_node: Peer, topics: KafkaTool, consumer: KafkaTool, groups: KafkaTool, topic: str, group: str
) -> None:
    topics.printed("--create", "--topic", topic)
    produce(group_node, topic, "a\nb\nc\n")
    words = ["--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", "9000"]
    assert consumer.printed(*words, "--max-messages", "2") == "a\nb\n"
    assert f"{topic} 0 2 3 1 - - -" in re.sub(" +", " ", groups.printed("--describe", "--group", group))
    assert consumer.printed(*words, "--max-messages", "1") == "c\n"


def test_a_consumer_without_a_group_is_in_no_list(
    group_node: Peer, topics: KafkaTool, groups: KafkaTool, topic: str
) -> None:
    topics.printed("--create", "--topic", topic)
    produce(group_node, topic, "a\n")
    with consuming(group_node, "--topic", topic, "--from-beginning") as reader:
        reader.wait_for("\na\n")
        assert "console-consumer" not in groups.printed("--list")
        reader.type(INTERRUPT)
        assert reader.end() == 130
    assert "console-consumer" not in groups.printed("--list")


def test_keys_are_sent_and_shown(group_node: Peer, topics: KafkaTool, consumer: KafkaTool, topic: str) -> None:
    topics.printed("--create", "--topic", topic)
    warning = "is deprecated and will be removed in a future version."
    produce(group_node, topic, "no key\n")
    sent = produce(
        group_node, topic, "k1,v1\nk2,v2,v3\n", "--property", "parse.key=true", "--property", "key.separator=,"
    )
    assert sent == (0, f"Warning: --property {warning} Use --reader-property instead.\n", "")

    words = ["--topic", topic, "--from-beginning", "--max-messages", "3"]
    shown = consumer.printed(*words, "--property", "print.key=true", "--property", "key.separator=,")
    assert shown == (f"Option --property {warning} Use --formatter-property instead.\nnull,no key\nk1,v1\nk2,v2,v3\n")
    bad = produce(group_node, topic, "nokey\n", "--reader-property", "parse.key=true")
    assert bad == (1, "", "org.apache.kafka.common.KafkaException: No key separator found on line number 1: 'nokey'\n")


def test_headers_and_everything_else_of_a_record_are_shown(
    group_node: Peer, topics: KafkaTool, consumer: KafkaTool, topic: str
) -> None:
    topics.printed("--create", "--topic", topic, "--config", "message.timestamp.type=LogAppendTime")
    keyed = ["--reader-property", "parse.headers=true", "--reader-property", "parse.key=true"]
    produce(group_node, topic, "h1:v1,h2:v2\tkey\tvalue\n", *keyed, "--compression-codec", "--sync")
    produce(group_node, topic, "NULL\tNULL\tNULL\n", *keyed, "--reader-property", "null.marker=NULL")
    everything = ["timestamp", "partition", "offset", "epoch", "headers", "key"]
    columns = [word for name in everything for word in ("--formatter-property", f"print.{name}=true")]
    shown = consumer.printed(
        "--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "2", *columns
    )
    assert re.sub(r"Time:\d+", "Time:T", shown) == (
        "LogAppendTime:T\tPartition:0\tOffset:0\tEpoch:NOT_PRESENT\th1:v1,h2:v2\tkey\tvalue\n"
        "LogAppendTime:T\tPartition:0\tOffset:1\tEpoch:NOT_PRESENT\tNO_HEADERS\tnull\tnull\n"
    )


def test_a_record_that_cannot_be_shown_ends_the_tool_or_is_skipped(
    group_node: Peer, topics: KafkaTool, consumer: KafkaTool, topic: str
) -> None:
    topics.printed("--create", "--topic", topic)
    produce(group_node, topic, "four\nthree\n1234\n")
    integers = ["--value-deserializer", "org.apache.kafka.common.serialization.IntegerDeserializer"]
    words = ["--topic", topic, "--from-beginning", "--max-messages", "3", *integers]
    failed = consumer(*words)
    assert (failed.code, failed.out) == (1, "1718580594\n")
    assert "Processed a total of 2 messages\n" in failed.err
    assert failed.err.endswith(
        "org.apache.kafka.common.errors.SerializationException: Size of data received by IntegerDeserializer is not 4\n"
    )
    assert consumer.printed(*words, "--skip-message-on-error") == "1718580594\n825373492\n"


def test_what_groups_have_committed_is_read_from_its_topic(
    group_node: Peer, topics: KafkaTool, consumer: KafkaTool, topic: str, group: str
) -> None:
    topics.printed("--create", "--topic", topic)
    produce(group_node, topic, "a\nb\n")
    consumer.printed("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "2")
    words = ["--topic", "__consumer_offsets", "--from-beginning", *SECOND, "--formatter"]
    shown = consumer.printed(*words, OFFSETS_FORMATTERS[0])
    assert f'{{"key":{{"type":1,"data":{{"group":"{group}","topic":"{topic}","partition":0}}}},"value":{{' in shown
    assert '"data":{"offset":2,' in shown.partition(group)[2]
    for older in OFFSETS_FORMATTERS[1:]:
        assert consumer.printed(*words, older, "--max-messages", "0") == ""


def test_topics_of_a_pattern_are_read_those_of_the_cluster_left_out(
    group_node: Peer, topics: KafkaTool, consumer: KafkaTool, topic: str
) -> None:
    for name in ("a", "b"):
        topics.printed("--create", "--topic", f"{topic}.{name}")
        produce(group_node, f"{topic}.{name}", f"of {name}\n")
    for flag in ("--include", "--whitelist"):
        words = [flag, rf"{topic}\.[ab]|__consumer_offsets", "--from-beginning", "--max-messages", "2"]
        assert sorted(consumer.printed(*words).splitlines()) == ["of a", "of b"]


def test_a_topic_that_is_not_there_is_made_and_waited_for(group_node: Peer, topic: str) -> None:
    with consuming(
        group_node, "--topic", topic, "--from-beginning", "--command-property", "fetch.max.wait.ms=50"
    ) as one:
        sent = produce(group_node, topic, "first\n")
        assert sent.code == 0
        one.wait_for("first\n")


def test_flags_of_older_versions_do_what_they_mean(consumer: KafkaTool, topic: str) -> None:
    words = ["--zookeeper", "localhost:2181", "--new-consumer", "--topic", topic, *SECOND]
    done = consumer(*words)
    assert (done.code, done.out) == (0, "")


def test_somebody_who_points_to_a_zookeeper_is_told_where_that_leads(capsys: pytest.CaptureFixture[str]) -> None:
    done = run_tool(capsys, CONSUMER, "--zookeeper", "localhost:2181", "--topic", "t", "--offset", "1")
    assert done.err.startswith(
        "--zookeeper: there is no ZooKeeper any more; this is `--bootstrap-server localhost:9092`\n"
        "The partition is required when offset is specified.\n"
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "Exactly one of the following arguments is required: [topic], [include]"),
        (["--topic", "t", "--partition", "x"], "Cannot parse argument 'x' of option partition"),
        (
            ["--topic", "t", "--partition", "0", "--offset", "-5"],
            BAD_OFFSET,
        ),
        (
            ["--topic", "t", "--group", "g", "--partition", "0"],
            "Options group and partition cannot be specified together.",
        ),
        (["--topic", "t", "--formatter", "no.Such"], "no.Such"),
        (
            ["--topic", "t", "--isolation-level", "foo"],
            BAD_ISOLATION,
        ),
        (["--include", "t["], "java.util.regex.PatternSyntaxException: Unclosed character class near index 1"),
    ],
)
def test_what_a_consumer_cannot_do_is_said_in_kafkas_words(
    consumer: KafkaTool, words: list[str], complaint: str
) -> None:
    done = consumer(*words)
    assert (done.code, done.out, done.err.removeprefix(KIP_848).partition("\n")[0]) == (1, "", complaint)


def test_when_nobody_reads_any_more_the_consumer_ends(group_node: Peer, topics: KafkaTool, topic: str) -> None:
    topics.printed("--create", "--topic", topic)
    produce(group_node, topic, "line\n" * 1000)
    command = [*COMMAND, CONSUMER, "--bootstrap-server", group_node.bootstrap]
    process = subprocess.Popen(
        [*command, "--topic", topic, "--from-beginning"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "line\n"
    process.stdout.close()
    produce(group_node, topic, "line\n" * 10_000)
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(DEADLINE_S) == 0
    assert "Unable to write to standard out, closing consumer.\nProcessed a total of " in err


def test_a_producer_whose_input_is_closed_has_no_lines_to_send(group_node: Peer, topic: str) -> None:
    words = [*COMMAND, PRODUCER, "--bootstrap-server", group_node.bootstrap, "--topic", topic]
    done = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_help_does_without_what_only_a_client_needs(capsys: pytest.CaptureFixture[str]) -> None:
    for name in (PRODUCER, CONSUMER):
        code = (
            f"import sys; from barnabas.cli.main import main; main(['kafka', '{name}', '--help']); print(*sys.modules)"
        )
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert not {"confluent_kafka", "rich", "uvloop", "barnabas.node"} & set(shown.stdout.split())
    assert main(["kafka", PRODUCER, "--help"]) == 1
    assert capsys.readouterr().err.startswith(
        "This tool helps to read data from standard input and publish it to Kafka."
    )
