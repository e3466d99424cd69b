"""`barnabas bench` on a real node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.clients.barnabas_command.terminal import CTRL_C, Terminal

if TYPE_CHECKING:
    from tests.clients.barnabas_command.command import Barnabas


def test_a_load_of_a_given_rate_is_measured_and_leaves_no_topic(barnabas: Barnabas) -> None:
    facts = barnabas.facts("bench", "--seconds", "1", "--rate", "500", "--size", "200")
    assert 0 < facts["sent"] <= 550
    assert facts["failed"] == 0
    assert facts["record_bytes"] == 200
    assert 0 < facts["delay_ms"]["p50"] <= facts["delay_ms"]["p99"]
    assert len(facts["samples"]) >= 1
    assert "barnabas-bench" not in barnabas.printed("topic", "list")


def test_figures_go_into_a_pipe_and_a_curve_ends_them(barnabas: Barnabas, topic: str) -> None:
    barnabas.printed("topic", "create", topic)
    printed = barnabas.printed("bench", "--seconds", "0.5", "--topic", topic, "--no-read", "--rate", "1000")
    assert re.match(r" +0\.\d s   sent +[\d,]+/s +\d+\.\d MB/s\n", printed)
    assert "records sent per second\n" in printed
    assert "┤" in printed
    count = int(re.search(r"^sent ([\d,]+) records in ", printed, re.MULTILINE)[1].replace(",", ""))  # type: ignore[index]
    assert len(barnabas.printed("consume", topic, "--exit-at-end", "--output", "table").splitlines()) == count + 1


def test_an_interrupted_load_shows_what_was_measured(barnabas: Barnabas) -> None:
    words = ("bench", "--seconds", "60", "--rate", "200", "--bootstrap-server", barnabas.bootstrap)
    with Terminal(*words) as terminal:
        terminal.wait_for("records sent per second")
        terminal.resize(60, 20)
        terminal.press(CTRL_C)
        assert terminal.end() == 130
        assert re.search(r"sent \d+ records in \d+\.\d s", terminal.text)
        assert "Traceback" not in terminal.text
        assert terminal.is_as_before
    assert "barnabas-bench" not in barnabas.printed("topic", "list")


@pytest.mark.parametrize(
    ("words", "complaint", "code"),
    [
        (("--size", "4"), "'4' is too small: a record has 8 bytes at least", 2),
        (("--topic", "no-such-topic"), "topic 'no-such-topic' does not exist", 1),
    ],
)
def test_a_load_that_cannot_be_is_refused(
    barnabas: Barnabas, words: tuple[str, ...], complaint: str, code: int
) -> None:
    assert complaint in barnabas.complaint("bench", *words, code=code)
