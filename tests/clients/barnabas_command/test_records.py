"""`barnabas produce`, `barnabas consume` beyond lines: files, filters, forms, searches, and what a terminal changes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.clients.adapter import Message
from tests.clients.barnabas_command.terminal import CTRL_C, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.clients.barnabas_command.command import Barnabas
    from tests.clients.with_confluent import ConfluentClient

MINUTE_MS = 60_000
MANY = 150_000


@pytest.fixture
def orders(group_confluent: ConfluentClient, topic: str) -> str:
    """Four orders, ten minutes apart, the last of which is no JSON."""
    group_confluent.create_topic(topic)
    start_ms = int(time.time() * 1000) - 35 * MINUTE_MS
    contents = [
        (b"a", b'{"customer": {"name": "alice"}, "total": 10, "tags": ["new"]}', (("source", b"web"),)),
        (b"b", b'{"customer": {"name": "bob"}, "total": 200, "tags": []}', (("source", b"shop"),)),
        (None, b'{"customer": {"name": "carol"}, "total": 30, "tags": ["new", "big"]}', ()),
        (b"d", b"\xff\x00 alice", (("trace", None),)),
    ]
    messages = [
        Message(value, key=key, headers=headers, timestamp_ms=start_ms + i * 10 * MINUTE_MS)
        for i, (key, value, headers) in enumerate(contents)
    ]
    group_confluent.produce(topic, messages, partition=0)
    return topic


@pytest.fixture
def found(barnabas: Barnabas, orders: str) -> Callable[..., list[int]]:
    """The offsets of the records that are printed."""

    def consume(*words: str) -> list[int]:
        printed = barnabas.printed("consume", orders, "--exit-at-end", "--json", *words)
        return [json.loads(line)["offset"] for line in printed.splitlines()]

    return consume


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (("--key", "^[ab]$"), [0, 1]),
        (("--value", "alice"), [0, 3]),
        (("--header", "source"), [0, 1]),
        (("--header", "source=^w"), [0]),
        (("--header", "trace"), [3]),
        (("--where", ".customer.name=bob"), [1]),
        (("--where", "total>=30", "--where", "tags[*]=new"), [2]),
        (("--where", "tags[0]"), [0, 2]),
        (("--search", "alice|web"), [0, 3]),
        (("--search", "trace"), [3]),
        (("--after", "-20m"), [2, 3]),
        (("--before", "-20m", "--where", "total"), [0, 1]),
        (("--from", "-20m"), [2, 3]),
        (("--from", "-30m", "--to", "-10m"), [1, 2]),
        (("--from", "1", "--to", "3"), [1, 2]),
        (("--to", "-1"), [0, 1, 2]),
        (("--from", "-1h", "--to", "2020-01-01"), []),
        (("--from", "-3", "--max-messages", "2"), [1, 2]),
    ],
)
def test_only_records_are_printed_that_are_wanted(
    found: Callable[..., list[int]], words: tuple[str, ...], offsets: list[int]
) -> None:
    assert found(*words) == offsets


def test_a_search_ends_where_the_topic_does(barnabas: Barnabas, orders: str) -> None:
    assert barnabas.printed("consume", orders, "--search", "carol", "--output", "text").count("\n") == 1
    assert barnabas.printed("consume", orders, "--search", "nobody") == ""
    assert barnabas.printed("consume", orders, "--search", "x", "--from", "end") == ""


def test_a_record_has_other_forms_than_text(barnabas: Barnabas, orders: str) -> None:
    table = barnabas.printed("consume", orders, "--exit-at-end", "--output", "table").splitlines()
    assert table[0].split() == ["partition", "offset", "time", "key", "value"]
    assert re.fullmatch(r" +0 +1  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  b +\{.*\}", table[2])
    assert table[4].endswith("0xff0020616c696365")
    dump = barnabas.printed("consume", orders, "--from", "3", "--exit-at-end", "--output", "hex").splitlines()
    assert re.fullmatch(r"partition 0  offset 3  \d{4}-.*", dump[0])
    assert dump[1:] == [
        "  key: 1 bytes",
        "    00000000  64                                               d",
        "  header trace: null",
        "  value: 8 bytes",
        "    00000000  ff 00 20 61 6c 69 63 65                          .. alice",
    ]
    assert barnabas.printed("consume", orders, "--exit-at-end", "--output", "json") == barnabas.printed(
        "consume", orders, "--exit-at-end", "--json"
    )


def test_records_go_from_topic_to_topic_as_they_are(barnabas: Barnabas, orders: str) -> None:
    copy = f"{orders}-copy"
    barnabas.printed("topic", "create", copy)
    before = barnabas.printed("consume", orders, "--exit-at-end", "--json")
    barnabas.printed("produce", copy, "--format", "records", stdin=before)
    after = barnabas.printed("consume", copy, "--exit-at-end", "--json")
    assert after == before.replace(orders, copy)


def test_files_of_json_and_csv_become_records(barnabas: Barnabas, topic: str, tmp_path: Path) -> None:
    barnabas.printed("topic", "create", topic)
    (tmp_path / "one.json").write_text('{"id": 1, "user": {"name": "alice"}}\n\n{"id": 2, "user": {"name": 7}}\n')
    (tmp_path / "two.json").write_text('{"id": 3, "user": {"name": "carol"}}')
    files = [str(tmp_path / name) for name in ("one.json", "two.json")]
    done = barnabas.facts("produce", topic, *files, "--format", "json", "--key-field", ".user.name")
    assert done == {"topic": topic, "delivered": 3, "failed": 0, "malformed": 0}
    assert barnabas.printed("consume", topic, "--exit-at-end", "--print-key").splitlines() == [
        'alice\t{"id": 1, "user": {"name": "alice"}}',
        '7\t{"id": 2, "user": {"name": 7}}',
        'carol\t{"id": 3, "user": {"name": "carol"}}',
    ]
    table = "id,name,vip\n1,alice,true\n2,bob,\n"
    barnabas.printed("produce", topic, "--format", "csv", "--types", "--key-field", "name", stdin=table)
    assert barnabas.printed("consume", topic, "--from", "3", "--exit-at-end", "--print-key").splitlines() == [
        'alice\t{"id": 1, "name": "alice", "vip": true}',
        'bob\t{"id": 2, "name": "bob", "vip": null}',
    ]


def test_a_malformed_line_is_named_by_file_and_number(barnabas: Barnabas, topic: str, tmp_path: Path) -> None:
    barnabas.printed("topic", "create", topic)
    path = tmp_path / "bad.json"
    path.write_text('{"id": 1}\n{"id": 2\n{"id": 3}\n')
    words = ("produce", topic, str(path), "--format", "json")
    told = "line 2 is no JSON: Expecting ',' delimiter at character 9"
    assert barnabas.complaint(*words) == f"barnabas: {path}, {told} (1 before it delivered)\n"
    assert barnabas.complaint(*words, "--skip-malformed").splitlines() == [
        f"barnabas: {path}, {told}; left out",
        f"barnabas: 1 malformed line left out; 2 records delivered to {topic!r}",
    ]
    assert barnabas.printed("consume", topic, "--exit-at-end").splitlines() == ['{"id": 1}', '{"id": 1}', '{"id": 3}']


@pytest.mark.parametrize(
    ("words", "complaint", "code"),
    [
        (("consume", "t", "--where", "=1"), "does not begin with a path", 2),
        (("consume", "t", "--key", "("), "is no regular expression", 2),
        (("consume", "t", "--after", "soon"), "'soon' is not valid: expected a time such as", 2),
        (("consume", "t", "--follow", "--exit-at-end"), "--follow goes on", 2),
        (("consume", "t", "--output", "xml"), "invalid choice: 'xml'", 2),
        (("produce", "t", "--types"), "--types belongs to --format csv", 2),
        (("produce", "t", "--format", "csv", "--delimiter", "ab"), "'ab' is no single character", 2),
        (("produce", "t", "--format", "json", "--key-field", "="), "does not begin with a path", 2),
        (("produce", "t", "/nowhere/at/all"), "cannot read /nowhere/at/all: No such file", 1),
        (("produce", "t", "/"), "cannot read /: Is a directory", 1),
    ],
)
def test_what_makes_no_sense_is_answered_in_one_line(
    barnabas: Barnabas, words: tuple[str, ...], complaint: str, code: int
) -> None:
    said = barnabas.complaint(*words, code=code)
    assert complaint in said
    assert said.count("\n") == 1


@pytest.fixture(scope="module")
def many_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "lines.txt"
    path.write_text("".join(f"line {number}\n" for number in range(MANY)))
    return path


def test_a_search_shows_how_far_it_is_and_leaves_what_it_found(
    barnabas: Barnabas, topic: str, many_lines: Path
) -> None:
    barnabas.printed("topic", "create", topic)
    server = ("--bootstrap-server", barnabas.bootstrap)
    with Terminal("produce", topic, str(many_lines), *server) as terminal:
        terminal.wait_for(r"producing ━.* \d")
        assert terminal.end() == 0
        assert terminal.text.endswith(f"{MANY} records delivered to {topic!r}\n")
    # What is looked for is parsed as JSON, record by record: that takes a while.
    words = ("consume", topic, "--search", "line 1", "--where", "x", *server)
    with Terminal(*words, columns=120) as terminal:
        terminal.wait_for(rf"of {MANY:,} records, 0 printed")
        terminal.resize(70, 20)
        terminal.press(CTRL_C)
        assert terminal.end() == 130
        assert "Traceback" not in terminal.text
        assert terminal.is_as_before
    with Terminal("consume", topic, "--search", "7777$", *server, columns=120) as terminal:
        assert terminal.end() == 0
        assert terminal.is_as_before
        found = re.findall(r"^(?:.*\r)?\s*(line \d+)$", terminal.text.replace("\r\n", "\n"), re.MULTILINE)
        assert found == [f"line {number}" for number in range(MANY) if str(number).endswith("7777")]


def test_a_followed_topic_is_shown_as_it_grows_at_a_terminal_that_is_resized(barnabas: Barnabas, orders: str) -> None:
    words = ("consume", orders, "--follow", "--output", "table", "--bootstrap-server", barnabas.bootstrap)
    with Terminal(*words, columns=140) as terminal:
        terminal.wait_for("partition +offset")
        long = "x" * 60
        barnabas.printed("produce", orders, stdin=f"{long}\n")
        at = terminal.wait_for(rf"{long}\n")
        assert "alice" not in terminal.text
        terminal.resize(100, 20)
        barnabas.printed("produce", orders, stdin=f"y{long}\n")
        terminal.wait_for(r"yx+…\n", after=at)
        terminal.press(CTRL_C)
        assert terminal.end() == 130
        assert "Traceback" not in terminal.text


def test_colours_are_for_terminals_that_want_them(barnabas: Barnabas, orders: str) -> None:
    words = ("consume", orders, "--exit-at-end", "--output", "table", "--bootstrap-server", barnabas.bootstrap)
    with Terminal(*words) as terminal:
        assert terminal.end() == 0
        assert b"\x1b[2m" in terminal.seen
    with Terminal(*words, environment={"NO_COLOR": "1"}) as terminal:
        assert terminal.end() == 0
        assert b"\x1b[2m" not in terminal.seen


def test_a_reader_that_has_seen_enough_ends_it_quietly(barnabas: Barnabas, orders: str) -> None:
    command = f"{sys.executable} -m barnabas consume {orders} --bootstrap-server {barnabas.bootstrap} --from 0"
    pipeline = f"{{ {command}; echo $? >&2; }} | head -n 1"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, timeout=30)
    assert (done.stdout.count("\n"), done.stderr) == (1, "0\n")
