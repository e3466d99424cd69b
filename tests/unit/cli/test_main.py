"""The command line finds the subcommand, and every failure is one line and an exit code."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from barnabas.cli import main as cli
from barnabas.cli.command_line import CommandError, UsageError


@pytest.fixture
def failing_version(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Lets a test decide how `barnabas version` ends."""
    import_module("barnabas.cli.version_command")
    return monkeypatch


def test_without_a_command_the_overview_goes_to_stderr_as_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage: barnabas COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["-h", "--help", "help"])
def test_help_lists_every_command(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name}" in shown for name in cli.COMMANDS)


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with_flag = exit_code([name, "--help"])
    shown = capsys.readouterr().out
    assert with_flag == 0
    assert f"usage: barnabas {name}" in shown
    assert exit_code(["help", name]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("typed", "meant"), [("strat", "start"), ("topc", "topic"), ("consumer", "consume"), ("prod", "produce")]
)
def test_a_mistyped_command_is_answered_with_the_nearest(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([typed]) == 2
    assert capsys.readouterr().err == f"barnabas: unknown command {typed!r}; did you mean {meant!r}?\n"


def test_a_word_like_no_command_is_answered_with_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["xyzzy"]) == 2
    printed = capsys.readouterr().err
    assert "known: start, " in printed
    assert all(name in printed for name in cli.COMMANDS)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["start", "--lisen", "9092"], "barnabas start: unknown option '--lisen'; did you mean '--listen'?"),
        (["start", "--lisen=9092"], "barnabas start: unknown option '--lisen'; did you mean '--listen'?"),
        (["start", "-listen", "9092"], "barnabas start: unknown option '-listen'; did you mean '--listen'?"),
        (["produce", "t", "--comression", "lz4"], "barnabas produce: unknown option '--comression'; did you mean"),
        (["consume", "t", "--max", "3"], "barnabas consume: unknown option '--max'; did you mean '--max-messages'?"),
        (["topic", "list", "--jsn"], "barnabas topic list: unknown option '--jsn'; did you mean '--json'?"),
        (["topic", "create", "t", "--partition", "3"], "did you mean '--partitions'?"),
        (["demo", "--record", "3"], "did you mean '--records'?"),
        (["version", "--verbose"], "barnabas version: unknown option '--verbose'; known: --help"),
        (["start", "now"], "barnabas start: unexpected argument 'now'"),
    ],
)
def test_a_word_that_a_command_does_not_know_is_answered_in_one_line(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(words) == 2
    shown = capsys.readouterr().err
    assert complaint in shown
    assert shown.count("\n") == 1


def test_a_value_that_an_option_does_not_take_is_answered_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["produce", "t", "--acks", "some"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("barnabas produce: argument --acks: invalid choice: 'some'")
    assert shown.count("\n") == 1


@pytest.mark.parametrize(("failure", "code"), [(CommandError("it broke"), 1), (UsageError("makes no sense"), 2)])
def test_a_failure_is_one_line_on_stderr(
    failure: CommandError, code: int, failing_version: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_version.setattr("barnabas.cli.version_command.run", raising(failure))
    assert cli.main(["version"]) == code
    assert capsys.readouterr().err == f"barnabas: {failure}\n"


def test_an_interrupt_ends_with_the_code_shells_give_it(failing_version: pytest.MonkeyPatch) -> None:
    failing_version.setattr("barnabas.cli.version_command.run", raising(KeyboardInterrupt()))
    assert cli.main(["version"]) == 130


def test_a_reader_that_leaves_early_is_no_error() -> None:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m barnabas help | true"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("flag", ["version", "--version", "-V"])
def test_version_names_the_package(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([flag]) == 0
    assert capsys.readouterr().out.startswith("barnabas 0.")


def test_starting_a_node_loads_neither_rich_nor_librdkafka() -> None:
    program = (
        "import sys, barnabas.cli.main, barnabas.cli.start_command, barnabas.node.process; "
        "print([name for name in ('rich', 'confluent_kafka') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "words",
    [*([name, "--help"] for name in ("group", "config", "transactions", "completion")), ["status", "/"], ["stop", "/"]],
    ids=lambda words: words[0],
)
def test_commands_without_records_load_neither_rich_nor_librdkafka_before_they_need_them(words: list[str]) -> None:
    program = (
        f"import sys, barnabas.cli.main; barnabas.cli.main.main({words}); "
        "print([name for name in ('rich', 'confluent_kafka', 'uvloop', 'barnabas.node') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def exit_code(arguments: list[str]) -> object:
    """argparse leaves by SystemExit where our own commands return."""
    try:
        return cli.main(arguments)
    except SystemExit as end:
        return end.code


def raising(failure: BaseException) -> object:
    def run(_arguments: list[str]) -> int:
        raise failure

    return run
