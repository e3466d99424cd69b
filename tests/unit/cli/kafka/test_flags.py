"""The command lines of Kafka's tools: what joptsimple accepts, and what it says about what it does not."""

from __future__ import annotations

import pytest

from barnabas.cli.kafka.flags import Flag, FlagError, Flags
from barnabas.cli.kafka.tool import ToolUsageError

FLAGS = Flags(
    Flag(("topic",), "The topic.", "String: topic"),
    Flag(("partitions",), "How many.", "Integer: # of partitions"),
    Flag(("list",), "List all."),
    Flag(("config",), "A setting.", "String: name=value"),
    Flag(("verify", "v"), "Look.", "Boolean", is_optional=True),
    Flag(("size",), "How large.", "Integer", default="0", is_optional=True, is_number=True),
    Flag(("codec",), "A codec.", "String: codec", default="gzip"),
    Flag(("ids",), "Several.", "Integer", separator=","),
)


@pytest.mark.parametrize(
    "words",
    [["--topic", "a"], ["--topic=a"], ["-topic", "a"], ["-topic=a"], ["left-alone", "--topic", "a", "--", "--list"]],
)
def test_a_flag_takes_its_argument_in_each_form(words: list[str]) -> None:
    given = FLAGS.read(words)
    assert given.text("topic") == "a"
    assert not given.has("list")


def test_an_argument_may_look_like_a_flag() -> None:
    assert FLAGS.read(["--topic", "--list"]).text("topic") == "--list"


def test_an_optional_argument_is_no_flag() -> None:
    given = FLAGS.read(["--verify", "--list"])
    assert given.has("verify")
    assert not given.has_argument("verify")
    assert given.has("list")
    assert FLAGS.read(["-v", "true"]).text("verify") == "true"


def test_what_is_not_given_has_its_default() -> None:
    given = FLAGS.read([])
    assert given.text("codec") == "gzip"
    assert given.text("topic") is None
    assert given.integer("partitions") is None


def test_several_are_kept_in_their_order() -> None:
    given = FLAGS.read(["--config", "a=1", "--config=b=2", "--ids", "3,4"])
    assert given.texts("config") == ["a=1", "b=2"]
    assert given.texts("ids") == ["3", "4"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tpic", "a"], "tpic is not a recognized option"),
        (["-xyz"], "x is not a recognized option"),
        (["--topi", "a"], "topi is not a recognized option"),
        (["--topic"], "Option topic requires an argument"),
    ],
)
def test_a_word_that_cannot_be_is_named(words: list[str], message: str) -> None:
    with pytest.raises(FlagError) as caught:
        FLAGS.read(words)
    assert caught.value.message == message


def test_a_flag_without_an_argument_ignores_one_behind_an_equals_sign() -> None:
    assert FLAGS.read(["--list=no"]).has("list")


def test_values_are_read_when_they_are_asked_for() -> None:
    given = FLAGS.read(["--partitions", "3x", "--topic", "a", "--topic", "b"])
    with pytest.raises(FlagError) as caught:
        given.integer("partitions")
    assert caught.value.message == "Cannot parse argument '3x' of option partitions"
    with pytest.raises(FlagError) as caught:
        given.text("topic")
    assert caught.value.message == "Found multiple arguments for option topic, but you asked for only one"


def test_flags_that_do_not_go_together_are_named() -> None:
    given = FLAGS.read(["--list", "--partitions", "3"])
    with pytest.raises(ToolUsageError) as caught:
        FLAGS.check_required(given, "list", "topic")
    assert caught.value.message == 'Missing required argument "[topic]"'
    with pytest.raises(ToolUsageError) as caught:
        FLAGS.check_invalid(given, "list", "topic", "partitions")
    assert caught.value.message == 'Option "[list]" can\'t be used with option "[partitions]"'


def test_an_argument_that_may_be_missing_may_be_a_negative_number() -> None:
    given = FLAGS.read(["--size", "-1", "--list"])
    assert (given.integer("size"), given.has("list")) == (-1, True)
    assert FLAGS.read(["--size", "--list"]).integer("size") == 0
    with pytest.raises(FlagError, match="1 is not a recognized option"):
        FLAGS.read(["--verify", "-1"])
