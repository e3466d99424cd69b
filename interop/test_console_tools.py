"""Our console producer and consumer beside Kafka's own, on the same broker, line by line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from tools import apache_kafka

from interop.kafka_tools import DEADLINE_S, MAIN_CLASSES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.peers import Peer

    from interop.kafka_tools import KafkaTools

OURS: Final = [sys.executable, "-P", "-c", "import sys; from barnabas.cli.main import main; sys.exit(main())", "kafka"]
PRODUCER, CONSUMER = "kafka-console-producer", "kafka-console-consumer"
TOPIC: Final = "of-the-console"
"""What both consumers read."""
PACKAGE: Final = "org.apache.kafka.tools.consumer."
SERIALIZATION: Final = "org.apache.kafka.common.serialization."
ALL_COLUMNS: Final = [
    word
    for name in ("timestamp", "key", "offset", "partition", "epoch", "headers", "value")
    for word in ("--formatter-property", f"print.{name}=true")
]
TO_THE_END: Final = ["--from-beginning", "--timeout-ms", "3000"]
FIRST: Final = ["--topic", TOPIC, "--from-beginning", "--max-messages", "1"]

_LOG_LINE: Final = re.compile(r"\d\d:\d\d:\d\d,\d{3} (?P<level>[A-Z]+) (?P<logger>\w+): (?P<message>.*)")
_OUR_LOG_LINE: Final = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] (?P<level>[A-Z]+) (?P<message>.*) \([\w.]*?(?P<logger>\w+)\)"
)
_BEFORE_THE_MESSAGE: Final = re.compile(
    r'^(?:Exception in thread "main" )?'
    r"(?:(?:joptsimple\.\w+Exception|java\.nio\.file\.NoSuchFileException): )?"
)
_NOT_COMPARED: Final = re.compile(
    r"WARN |\tat |\t\.\.\. |Caused by: |\(.*\)$|ERROR ConsoleConsumer: Unknown error when running consumer: |$"
)
"""Traces, hints of ours, and warnings, which come as often as somebody tries."""
_USAGE: Final = re.compile(r"^Option +Description")


class Ran(NamedTuple):
    """What a tool did, as far as it is compared."""

    code: int
    out: str
    said: list[str]


def both(
    bootstrap: str,
    name: str,
    *words: str,
    given: str = "",
    their_words: list[str] | None = None,
) -> tuple[Ran, Ran]:
    """What our tool and Kafka's do. Words that must differ, as a topic of its own, are given for Kafka's."""
    server = ["--bootstrap-server", bootstrap] if bootstrap else []
    theirs = apache_kafka.run_tool(
        MAIN_CLASSES[name], *server, *(their_words or words), input=given, timeout=DEADLINE_S
    )
    return ours(name, *server, *words, given=given), Ran(theirs.returncode, theirs.stdout, said(theirs.stderr))


def ours(name: str, *words: str, given: str = "") -> Ran:
    done = subprocess.run(
        [*OURS, name, *words], input=given, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    return Ran(done.returncode, done.stdout, said(done.stderr))


def said(text: str) -> list[str]:
    """The lines on standard error that are the tool's own words."""
    lines: list[str] = []
    for line in text.splitlines():
        if _USAGE.match(line):
            break
        found = _LOG_LINE.fullmatch(line) or _OUR_LOG_LINE.fullmatch(line)
        plain = f"{found['level']} {found['logger']}: {found['message']}" if found else line
        plain = re.sub(r"console-consumer-\d+", "console-consumer-N", _BEFORE_THE_MESSAGE.sub("", plain))
        if not _NOT_COMPARED.match(plain):
            lines.append(plain)
    return lines


@pytest.fixture(scope="module")
def bootstrap(peer: Peer, tools: KafkaTools) -> str:
    """A broker with a topic that has records of all kinds: with and without key, value and headers."""
    tools.run("kafka-topics", "--create", "--topic", TOPIC, "--partitions", "1")
    reading = ["parse.headers=true", "parse.key=true", "null.marker=NULL", "headers.delimiter=;", "key.separator=:"]
    given = (
        "NULL;NULL:plain\n"
        "h1:v1,h2:NULL;k1:with headers\n"
        "NULL;k2:NULL\n"
        "NULL;:\n"
        "h:ü;ключ:значение\n"
        "NULL;k3:1234\n"
        "NULL;k4:12345678\n"
        "NULL;k5:0d3b2f0e-9c1a-4d6f-8b3a-1f2e3d4c5b6a\n"
        "NULL;k6:back\\slash\tand tab\n"
    )
    words = [word for each in reading for word in ("--reader-property", each)]
    tools.run(PRODUCER, "--topic", TOPIC, *words, input=given)
    return peer.bootstrap


PRINTED: Final[dict[str, list[str]]] = {
    "everything": ["--topic", TOPIC, *TO_THE_END],
    "all columns": ["--topic", TOPIC, *TO_THE_END, *ALL_COLUMNS],
    "by the old flag": ["--topic", TOPIC, *TO_THE_END, "--property", "print.key=true", "--property", "key.separator=,"],
    "separators": [
        "--topic",
        TOPIC,
        *TO_THE_END,
        *ALL_COLUMNS,
        *("--formatter-property", "key.separator= | "),
        *("--formatter-property", "line.separator=<\n"),
        *("--formatter-property", "headers.separator=&"),
        *("--formatter-property", "null.literal=NIL"),
    ],
    "keys only": [
        *("--topic", TOPIC, *TO_THE_END, "--formatter-property", "print.value=false"),
        *("--formatter-property", "print.key=true"),
    ],
    "headers only": [
        *("--topic", TOPIC, *TO_THE_END, "--formatter-property", "print.value=false"),
        *("--formatter-property", "print.headers=TRUE "),
    ],
    "nothing of each": ["--topic", TOPIC, *TO_THE_END, "--formatter-property", "print.value=false"],
    "delivery": [*FIRST, "--formatter-property", "print.delivery=true"],
    "some": ["--topic", TOPIC, "--from-beginning", "--max-messages", "3"],
    "none": ["--topic", TOPIC, "--from-beginning", "--max-messages", "0"],
    "a negative number": ["--topic", TOPIC, "--from-beginning", "--max-messages", "-5"],
    "without an end": ["--topic", TOPIC, "--from-beginning", "--max-messages", "-1", "--timeout-ms", "3000"],
    "from the end": ["--topic", TOPIC, "--timeout-ms", "3000"],
    "an extra word": [*FIRST, "extra"],
    "with equals signs": [f"--topic={TOPIC}", "--from-beginning", "--max-messages=2"],
    "with one dash": ["-topic", TOPIC, "-from-beginning", "-max-messages", "2"],
    "a partition from its end": ["--topic", TOPIC, "--partition", "0", "--timeout-ms", "3000"],
    "a partition from its beginning": ["--topic", TOPIC, "--partition", "0", *TO_THE_END],
    "from an offset": ["--topic", TOPIC, "--partition", "0", "--offset", "4", "--max-messages", "2"],
    "earliest": ["--topic", TOPIC, "--partition", "0", "--offset", "earliest", "--max-messages", "2"],
    "EARLIEST": ["--topic", TOPIC, "--partition", "0", "--offset", "EARLIEST", "--max-messages", "2"],
    "latest": ["--topic", TOPIC, "--partition", "0", "--offset", "latest", "--timeout-ms", "3000"],
    "from an offset beyond the end": ["--topic", TOPIC, "--partition", "0", "--offset", "99", "--timeout-ms", "3000"],
    "a partition that is not there": ["--topic", TOPIC, "--partition", "7", *TO_THE_END],
    "a pattern": ["--include", "of-the-con.*", *TO_THE_END],
    "a pattern for part of the name": ["--include", "the-console", *TO_THE_END],
    "a pattern of Java's": ["--include", r"\Qof-the\E-\p{javaLowerCase}+|of-the-[a-z]++", *TO_THE_END],
    "committed records": ["--topic", TOPIC, *TO_THE_END, "--isolation-level", "read_committed"],
    "events for the system's tests": [*FIRST, "--enable-systest-events"],
    "a property by its old flag": [*FIRST, "--consumer-property", "client.id=me"],
    "a property": [*FIRST, "--command-property", "client.id=me", "--command-property", "nobody.knows=this"],
    "logging": [*FIRST, "--formatter", f"{PACKAGE}LoggingMessageFormatter"],
    "no output": ["--topic", TOPIC, *TO_THE_END, "--formatter", f"{PACKAGE}NoOpMessageFormatter"],
    "a place without a policy": [
        "--topic",
        TOPIC,
        "--timeout-ms",
        "3000",
        "--command-property",
        "auto.offset.reset=none",
    ],
    "an hour back": [
        "--topic",
        TOPIC,
        "--timeout-ms",
        "3000",
        "--command-property",
        "auto.offset.reset=by_duration:PT1H",
    ],
    "a coordinator's formatter": [*FIRST, "--formatter", f"{PACKAGE}OffsetsMessageFormatter"],
    "a coordinator's formatter for what is none": [
        *("--topic", TOPIC, *TO_THE_END, "--formatter", f"{PACKAGE}GroupMetadataMessageFormatter"),
    ],
    "a key deserializer": [
        *("--topic", TOPIC, *TO_THE_END, "--key-deserializer", f"{SERIALIZATION}BytesDeserializer"),
        *("--formatter-property", "print.key=true"),
    ],
    "an encoding": [
        *("--topic", TOPIC, *TO_THE_END, "--value-deserializer", f"{SERIALIZATION}StringDeserializer"),
        *("--formatter-property", "value.deserializer.value.deserializer.encoding=ISO-8859-1"),
    ],
    "a header deserializer": [
        *("--topic", TOPIC, *TO_THE_END, "--formatter-property", "print.headers=true"),
        *("--formatter-property", f"headers.deserializer={SERIALIZATION}BytesDeserializer"),
    ],
    "an error without a word to skip it": [
        *("--topic", TOPIC, *TO_THE_END, "--formatter-property", "print.key=true"),
        *("--value-deserializer", f"{SERIALIZATION}LongDeserializer"),
    ],
}

DESERIALIZERS: Final = (
    "Boolean", "ByteBuffer", "Bytes", "Double", "Float", "Integer", "List", "Long", "Short", "String", "UUID", "Void",
)  # fmt: skip

REFUSED: Final[dict[str, list[str]]] = {
    "neither topic nor pattern": ["--max-messages", "1"],
    "topic and pattern": ["--topic", "a", "--include", "b"],
    "two topics": ["--topic", "a", "--topic", "b"],
    "a partition that is no number": ["--topic", TOPIC, "--partition", "x"],
    "a partition without a topic": ["--partition", "0"],
    "a partition of a pattern": ["--include", "a", "--partition", "0"],
    "an offset without a partition": ["--topic", TOPIC, "--offset", "3"],
    "a negative offset": ["--topic", TOPIC, "--partition", "0", "--offset", "-5"],
    "an offset that is none": ["--topic", TOPIC, "--partition", "0", "--offset", "abc"],
    "two places to begin": ["--topic", TOPIC, "--partition", "0", "--offset", "1", "--from-beginning"],
    "a group and a partition": ["--topic", TOPIC, "--group", "g", "--partition", "0"],
    "two groups": ["--topic", TOPIC, "--group", "g", "--consumer-property", "group.id=h"],
    "old and new property flags": ["--topic", TOPIC, "--consumer-property", "a=b", "--command-property", "c=d"],
    "old and new config flags": ["--topic", TOPIC, "--consumer.config", "/none", "--command-config", "/none"],
    "old and new formatter flags": ["--topic", TOPIC, "--property", "a=b", "--formatter-property", "c=d"],
    "a config that is not there": ["--topic", TOPIC, "--consumer.config", "/none"],
    "a formatter's config that is not there": ["--topic", TOPIC, "--formatter-config", "/none"],
    "two policies": ["--topic", TOPIC, "--from-beginning", "--consumer-property", "auto.offset.reset=latest"],
    "a policy that is none": ["--topic", TOPIC, "--command-property", "auto.offset.reset=foo"],
    "a formatter that is none": ["--topic", TOPIC, "--formatter", "no.Such"],
    "a timeout that is no number": ["--topic", TOPIC, "--timeout-ms", "x"],
    "an isolation that is none": ["--topic", TOPIC, "--isolation-level", "foo"],
    "a pattern that is none": ["--include", "t["],
    "another pattern that is none": ["--include", "*t"],
    "an open group in a pattern": ["--include", "(t"],
    "a topic's name that cannot be": ["--topic", "bad topic", "--timeout-ms", "9000"],
    "several topics": ["--topic", "a,b", "--timeout-ms", "9000"],
    "an empty topic": ["--topic", "", "--timeout-ms", "9000"],
    "an unknown flag": [*FIRST, "--unknown"],
    "a flag without its argument": ["--topic"],
    "a property of another type": ["--topic", TOPIC, "--command-property", "session.timeout.ms=x"],
    "a switch of another type": ["--topic", TOPIC, "--command-property", "enable.auto.commit=perhaps"],
    "a deserializer that is none": [*FIRST, "--value-deserializer", "no.Such"],
    "the version": ["--version"],
}


@pytest.mark.parametrize("words", PRINTED.values(), ids=PRINTED.keys())
def test_both_consumers_print_the_same(bootstrap: str, words: list[str]) -> None:
    mine, theirs = both(bootstrap, CONSUMER, *words)
    assert mine == theirs


@pytest.mark.parametrize("kind", DESERIALIZERS)
def test_both_consumers_read_values_of_a_kind_alike(bootstrap: str, kind: str) -> None:
    words = ["--topic", TOPIC, *TO_THE_END, "--formatter-property", "print.key=true", "--skip-message-on-error"]
    mine, theirs = both(bootstrap, CONSUMER, *words, "--value-deserializer", f"{SERIALIZATION}{kind}Deserializer")
    assert mine == theirs


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED.keys())
def test_both_consumers_refuse_the_same_in_the_same_words(bootstrap: str, words: list[str]) -> None:
    mine, theirs = both(bootstrap, CONSUMER, *words)
    assert mine == theirs


@pytest.mark.parametrize("server", ["", "nohost", "no.such.host.invalid:9092"])
def test_both_consumers_say_the_same_of_servers_that_cannot_be(tools: KafkaTools, server: str) -> None:
    words = ["--bootstrap-server", server] if server else []
    mine, theirs = both("", CONSUMER, "--topic", TOPIC, *words)
    assert mine == theirs


def test_both_consumers_give_up_on_a_server_that_does_not_answer(tools: KafkaTools) -> None:
    mine, theirs = both("127.0.0.1:1", CONSUMER, "--topic", TOPIC, "--timeout-ms", "2000")
    assert mine == theirs


def test_both_consumers_take_properties_from_files(bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "consumer").write_text("auto.offset.reset=earliest\nclient.id = me\n")
    (tmp_path / "formatter").write_text("print.key=true\nkey.separator=\\u0020=\\u0020\nprint.offset=true\n")
    words = ["--topic", TOPIC, "--timeout-ms", "3000", "--formatter-config", str(tmp_path / "formatter")]
    words += ["--formatter-property", "print.offset=false"]
    for flag in ("--command-config", "--consumer.config"):
        mine, theirs = both(bootstrap, CONSUMER, *words, flag, str(tmp_path / "consumer"))
        assert mine == theirs
        assert "k1 = with headers" in mine.out


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_both_commit_as_members_of_groups_what_they_printed_and_where_they_began(
    bootstrap: str, tools: KafkaTools, group: str, protocol: str
) -> None:
    groups = {"ours": f"{group}-ours-{protocol}", "theirs": f"{group}-theirs-{protocol}"}
    protocol_words = ["--command-property", f"group.protocol={protocol}", "--topic", TOPIC]

    def of_both(*words: str) -> tuple[Ran, Ran]:
        mine = [*protocol_words, "--group", groups["ours"], *words]
        return both(bootstrap, CONSUMER, *mine, their_words=[*protocol_words, "--group", groups["theirs"], *words])

    mine, theirs = of_both("--from-beginning", "--max-messages", "4")
    assert mine == theirs
    mine, theirs = of_both("--from-beginning", "--max-messages", "2")
    assert mine == theirs
    mine, theirs = of_both("--timeout-ms", "8000")
    assert mine == theirs
    described = [
        re.sub(r" +", " ", tools.run("kafka-consumer-groups", "--describe", "--group", each)).replace(each, "G")
        for each in groups.values()
    ]
    assert described[0] == described[1]
    groups = {name: f"{each}-new" for name, each in groups.items()}
    mine, theirs = of_both("--timeout-ms", "8000")
    assert mine == theirs
    described = [
        re.sub(r" +", " ", tools.run("kafka-consumer-groups", "--describe", "--group", each)).replace(each, "G")
        for each in groups.values()
    ]
    assert described[0] == described[1]
    assert re.search(rf"G {TOPIC} 0 9 9 0 ", described[0])


LONG_LINE: Final = "a" * 1000 + "\n"
"""librdkafka sends as it is what a codec would make longer."""

SENT: Final[dict[str, tuple[list[str], str]]] = {
    "lines": ([], "a\nb\n\nlast"),
    "all ends of lines": ([], "a\r\nb\rc\n"),
    "nothing": ([], ""),
    "keys": (["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"], "k:v\n:v2\nk3:\nk:a:b\n"),
    "keys by the old flag": (["--property", "parse.key=true", "--property", "key.separator=,"], "k,v\n"),
    "a line without key": (["--reader-property", "parse.key=true"], "k\tv\nnokey\nk2\tv2\n"),
    "a line without key, and no harm": (
        ["--reader-property", "parse.key=true", "--reader-property", "ignore.error=true"],
        "nokey\nk\tv\n",
    ),
    "headers": (["--reader-property", "parse.headers=true"], "h1:v1,h2:v2\tvalue\nh3:\tvalue\n"),
    "headers and keys": (
        ["--reader-property", "parse.headers=true", "--reader-property", "parse.key=true"],
        "h1:v1,h2:v2\tkey\tvalue\n",
    ),
    "headers with other separators": (
        [
            *("--reader-property", "parse.headers=true", "--reader-property", "headers.delimiter=#"),
            *("--reader-property", "headers.separator=[;|]+", "--reader-property", "headers.key.separator==>"),
        ],
        "a=>1;;b=>2|c=>3;#value\n",
    ),
    "no headers": (["--reader-property", "parse.headers=true"], "value\n"),
    "empty headers": (["--reader-property", "parse.headers=true"], "\tvalue\n"),
    "a header without a value": (["--reader-property", "parse.headers=true"], "h1:v1,h2\tvalue\n"),
    "a header without a value, and no harm": (
        ["--reader-property", "parse.headers=true", "--reader-property", "ignore.error=true"],
        "h1:v1,h2\tvalue\nh3:v\n",
    ),
    "nulls": (
        [
            *("--reader-property", "parse.headers=true", "--reader-property", "parse.key=true"),
            *("--reader-property", "null.marker=NULL"),
        ],
        "NULL\tNULL\tNULL\nh:NULL\tk\tNULL\n",
    ),
    "a null header": (
        ["--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL"],
        "NULL:x\tv\n",
    ),
    "two separators alike": (["--reader-property", "headers.delimiter=,"], "a\n"),
    "two others alike": (["--reader-property", "headers.separator=:"], "a\n"),
    "a marker like a separator": (["--reader-property", "null.marker=,"], "a\n"),
    "a key separator like a marker": (
        ["--reader-property", "key.separator=x", "--reader-property", "null.marker=x"],
        "a\n",
    ),
    "a pattern that is none": (["--reader-property", "headers.separator=["], "a\n"),
    "one at a time": (["--sync"], "a\nb\n"),
    "one at a time to a bad line": (["--sync", "--reader-property", "parse.key=true"], "a\tb\nx\n"),
    "a codec": (["--compression-codec", "zstd"], LONG_LINE),
    "a codec without a name": (["--compression-codec"], LONG_LINE),
    "a codec without a name before a flag": (["--compression-codec", "--sync"], LONG_LINE),
    "an empty codec": (["--compression-codec="], LONG_LINE),
    "no codec": (["--compression-codec", "none", "more"], "a\n"),
    "a codec that is none": (["--compression-codec", "foo"], "a\n"),
    "acks": (["--request-required-acks", "all"], "a\n"),
    "no acks": (["--request-required-acks", "0"], "a\n"),
    "acks by the old flag": (["--producer-property", "acks=all"], "a\n"),
    "acks that are none": (["--request-required-acks", "2"], "a\n"),
    "all numbers": (
        [
            *("--batch-size", "1", "--timeout", "5", "--metadata-expiry-ms", "1000", "--max-memory-bytes", "100000"),
            *("--socket-buffer-size", "1000", "--retry-backoff-ms", "7", "--max-block-ms", "9000"),
            *("--request-timeout-ms", "5000", "--message-send-max-retries", "0"),
        ],
        "a\nb\n",
    ),
    "the old batch size": (["--max-partition-memory-bytes", "1000"], "a\n"),
    "a batch size that is no number": (["--batch-size", "x"], "a\n"),
    "a linger that is no number": (["--command-property", "linger.ms=x"], "a\n"),
    "a negative linger": (["--timeout", "-5"], "a\n"),
    "idempotence without acks": (
        ["--command-property", "enable.idempotence=true", "--request-required-acks", "1"],
        "a\n",
    ),
    "a record that is too large": (["--command-property", "max.request.size=10"], "a\nbcd\n"),
    "a record that is too large, waited for": (["--command-property", "max.request.size=10", "--sync"], "a\n"),
    "an unknown property": (["--command-property", "nobody.knows=this"], "a\n"),
    "old and new property flags": (["--producer-property", "acks=1", "--command-property", "x=y"], "a\n"),
    "old and new reader flags": (["--property", "a=b", "--reader-property", "c=d"], "a\n"),
    "old and new config flags": (["--producer.config", "/none", "--command-config", "/none"], "a\n"),
    "a config that is not there": (["--producer.config", "/none"], "a\n"),
    "a reader's config that is not there": (["--reader-config", "/none"], "a\n"),
    "a reader that is none": (["--line-reader", "no.Such"], "a\n"),
    "a class that is no reader": (["--line-reader", "java.lang.Object"], "a\n"),
    "an unknown flag": (["--unknown"], "a\n"),
    "the version": (["--version"], ""),
}


@pytest.mark.parametrize(("words", "given"), SENT.values(), ids=SENT.keys())
def test_both_producers_make_the_same_records_of_lines(
    tools: KafkaTools, peer: Peer, topic: str, words: list[str], given: str
) -> None:
    topics = [f"{topic}-ours", f"{topic}-theirs"]
    for each in topics:
        tools.run("kafka-topics", "--create", "--topic", each)
    mine, theirs = both(
        peer.bootstrap,
        PRODUCER,
        *("--topic", topics[0], *words),
        given=given,
        their_words=["--topic", topics[1], *words],
    )
    mine = mine._replace(said=[line.replace(topics[0], topics[1]) for line in mine.said])
    assert mine == theirs
    assert records_in(peer, topics[0]) == records_in(peer, topics[1])
    assert codecs_in(peer, topics[0]) == codecs_in(peer, topics[1])


def records_in(peer: Peer, topic: str) -> str:
    words = ["--topic", topic, "--from-beginning", "--timeout-ms", "700", *ALL_COLUMNS]
    done = ours(CONSUMER, "--bootstrap-server", peer.bootstrap, *words)
    return re.sub(r"CreateTime:\d+", "CreateTime:T", done.out)


def codecs_in(peer: Peer, topic: str) -> set[int]:
    """The codecs of all batches in the log of a topic of one partition."""
    log = (peer.data_dir / f"{topic}-0" / "00000000000000000000.log").read_bytes()
    found, at = set(), 0
    while at < len(log):
        found.add(int.from_bytes(log[at + 21 : at + 23], "big") & 0b111)
        at += 12 + int.from_bytes(log[at + 8 : at + 12], "big")
    return found


@pytest.mark.parametrize(
    "words", [["--max-messages", "1"], ["--topic"], ["--topic", "x", "--bootstrap-server", "nohost"]]
)
def test_both_producers_refuse_the_same_command_lines(tools: KafkaTools, words: list[str]) -> None:
    mine, theirs = both("", PRODUCER, *words)
    assert mine == theirs


def test_both_producers_say_the_same_without_a_server_and_with_one_of_no_name(tools: KafkaTools) -> None:
    for words in (["--topic", "x"], ["--topic", "x", "--bootstrap-server", "no.such.host.invalid:9092"]):
        mine, theirs = both("", PRODUCER, *words)
        assert mine == theirs


def test_both_producers_say_of_each_line_that_nobody_took_it(tools: KafkaTools) -> None:
    mine, theirs = both("127.0.0.1:1", PRODUCER, "--topic", "x", "--max-block-ms", "1500", given="a\nbb\n")
    assert mine == theirs


@pytest.mark.parametrize("words", [[], ["--sync"]])
def test_both_producers_refuse_names_that_no_topic_has(bootstrap: str, words: list[str]) -> None:
    mine, theirs = both(bootstrap, PRODUCER, "--topic", "bad topic", *words, given="a\nbb\n")
    assert mine == theirs


def test_both_formatters_show_what_is_in_the_topics_of_coordinators(
    bootstrap: str, tools: KafkaTools, peer: Peer, group: str
) -> None:
    tools.run(CONSUMER, "--topic", TOPIC, "--group", group, "--from-beginning", "--max-messages", "2")
    tools.run("kafka-consumer-groups", "--delete", "--group", group)
    write_a_transaction(peer.bootstrap, f"of-{group}")
    shown = {}
    for name, topic in (
        ("OffsetsMessageFormatter", "__consumer_offsets"),
        ("GroupMetadataMessageFormatter", "__consumer_offsets"),
        ("ShareGroupMessageFormatter", "__consumer_offsets"),
        ("TransactionLogMessageFormatter", "__transaction_state"),
        ("TransactionLogMessageFormatter", "__consumer_offsets"),
    ):
        words = ["--topic", topic, "--from-beginning", "--formatter", f"{PACKAGE}{name}", "--timeout-ms", "4000"]
        theirs = apache_kafka.run_tool(MAIN_CLASSES[CONSUMER], "--bootstrap-server", bootstrap, *words)
        mine = ours(CONSUMER, "--bootstrap-server", bootstrap, *words)
        # Partitions come in any order, and Kafka's own tool joins groups, of which it reads as well.
        assert json_objects(mine.out, group) == json_objects(theirs.stdout, group)
        shown[name, topic] = json_objects(mine.out, group)
    assert shown["OffsetsMessageFormatter", "__consumer_offsets"]
    assert shown["GroupMetadataMessageFormatter", "__consumer_offsets"]
    assert shown["TransactionLogMessageFormatter", "__transaction_state"]
    assert not shown["TransactionLogMessageFormatter", "__consumer_offsets"]


def write_a_transaction(bootstrap: str, transactional_id: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"in a transaction")
    producer.commit_transaction(30)


def json_objects(text: str, about: str) -> list[str]:
    """The JSON objects in a text, one behind the other, that are about a group: word for word, in order."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        _, end = decoder.raw_decode(text, at)
        found.append(text[at:end])
        at = end
    return sorted(each for each in found if about in each)


def test_both_take_every_flag_that_kafkas_help_lists(tools: KafkaTools) -> None:
    for name in (PRODUCER, CONSUMER):
        mine = ours(name, "--help")
        theirs = apache_kafka.run_tool(MAIN_CLASSES[name], "--help")
        done = subprocess.run([*OURS, name, "--help"], capture_output=True, text=True, check=False)
        assert (mine.code, mine.out) == (theirs.returncode, theirs.stdout)
        assert flags_in(done.stderr) == flags_in(theirs.stderr)
        assert done.stderr.partition("\n")[0] == theirs.stderr.partition("\n")[0]


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"^--([\w.-]+)", text, re.MULTILINE))
