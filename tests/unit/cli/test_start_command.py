"""What `barnabas start` makes of its words: which setting wins, what is refused, what it prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from barnabas.cli import main, start_command
from barnabas.cli.command_line import CommandError
from barnabas.metadata.replay import ReplayError
from barnabas.net.endpoint import Listener
from barnabas.node import process
from barnabas.raft.folder.metadata_batches import NewerMetadataError

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.config.broker_config import BrokerConfig

FILE = """
process.roles=broker,controller
node.id=7
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:19093
listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093
log.dirs=/from/the/file
num.partitions=5
"""


@pytest.fixture
def properties(tmp_path: Path) -> str:
    path = tmp_path / "server.properties"
    path.write_text(FILE)
    return str(path)


def configured(*words: str) -> BrokerConfig:
    config, _ = start_command.load_config(start_command.build_parser().parse_args(words))
    return config


def addresses(listeners: tuple[Listener, ...]) -> list[str]:
    return [str(listener) for listener in listeners]


def test_without_words_the_node_listens_on_loopback_and_keeps_its_data_here() -> None:
    config = configured()
    assert addresses(config.listeners) == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.log_dirs == ("./barnabas-data",)
    assert addresses(config.controller_listeners) == ["CONTROLLER://127.0.0.1:0"]


def test_without_a_file_internal_topics_have_one_replica() -> None:
    config = configured()
    assert config.get("offsets.topic.replication.factor") == 1
    assert config.get("transaction.state.log.min.isr") == 1


def test_folder_and_address_come_from_the_command_line() -> None:
    config = configured("--data-dir", "/data", "--listen", "[::1]:0", "--set", "num.partitions=3")
    assert config.log_dirs == ("/data",)
    assert addresses(config.listeners) == ["PLAINTEXT://[::1]:0"]
    assert config.num_partitions == 3


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("19092", "PLAINTEXT://127.0.0.1:19092"),
        ("0", "PLAINTEXT://127.0.0.1:0"),
        ("localhost", "PLAINTEXT://localhost:9092"),
        ("PLAINTEXT://127.0.0.1:19092", "PLAINTEXT://127.0.0.1:19092"),
    ],
)
def test_what_an_address_leaves_out_is_this_machine_and_the_usual_port(typed: str, meant: str) -> None:
    assert addresses(configured("--listen", typed).listeners) == [meant]


def test_a_port_after_nothing_but_a_colon_is_answered_with_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["start", "--listen", ":19092"])
    assert end.value.code == 2
    shown = capsys.readouterr().err
    assert "use 127.0.0.1:19092 for this machine only, 0.0.0.0:19092 for every interface" in shown
    assert shown.count("\n") == 1


def test_a_file_says_it_all(properties: str) -> None:
    config = configured("--config", properties)
    assert (config.node_id, config.num_partitions, config.log_dirs) == (7, 5, ("/from/the/file",))
    assert addresses(config.listeners) == ["PLAINTEXT://127.0.0.1:19092"]


def test_the_command_line_is_stronger_than_the_file(properties: str) -> None:
    config = configured(
        "--config", properties, "--data-dir", "/data", "--listen", "127.0.0.1:0", "--set", "num.partitions=9"
    )
    assert (config.node_id, config.num_partitions, config.log_dirs) == (7, 9, ("/data",))
    assert addresses(config.listeners) == ["PLAINTEXT://127.0.0.1:0"]
    assert addresses(config.controller_listeners) == ["CONTROLLER://127.0.0.1:19093"]


def test_the_last_of_several_settings_of_one_name_counts() -> None:
    assert configured("--set", "num.partitions=2", "--set", "num.partitions=4").num_partitions == 4


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--listen", "0.0.0.0:19092"], "; add advertised.listeners=PLAINTEXT://"),
        (["--listen", "0.0.0.0:19092"], "--set advertised.listeners=PLAINTEXT://HOST:19092\n"),
        (["--set", "listeners=PLAINTEXT://0.0.0.0:9092"], "--set advertised.listeners=PLAINTEXT://HOST:9092\n"),
        (["--set", "listeners=SSL://127.0.0.1:9093", "--set", "inter.broker.listener.name=SSL"], "uses SSL"),
        (["--set", "listeners=SSL://127.0.0.1:9093"], "uses SSL, which is not supported yet"),
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--config", "/no/such/file.properties"], "cannot read /no/such/file.properties: No such file or directory"),
    ],
    ids=[
        "every interface",
        "in the command line's form",
        "of a setting",
        "security",
        "nothing but security",
        "a value",
        "a file",
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["start", *words]) == 1
    shown = capsys.readouterr().err
    assert complaint in shown
    assert shown.count("\n") == 1


def test_a_properties_file_that_is_none_is_refused_by_name_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.properties"
    path.write_text("a=1\nb=\\u12\n")
    with pytest.raises(CommandError, match=r"bad\.properties, line 2"):
        start_command.read_properties(str(path))
    path.write_bytes(b"a=\xff\n")
    with pytest.raises(CommandError, match=r"bad\.properties is not UTF-8 text"):
        start_command.read_properties(str(path))


def test_warnings_are_logged_before_the_node_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start_command, "serve", lambda _config, _outside: 0)
    assert main.main(["start", "--set", "num.partitons=3"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} WARNING start +.*num\.partitons.*num\.partitions.*", line
    )


def test_a_ready_node_is_announced_with_every_listener(capsys: pytest.CaptureFixture[str]) -> None:
    start_command.announce(
        [Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 41234), Listener("LAN", "PLAINTEXT", "::1", 9)]
    )
    assert capsys.readouterr().out == "barnabas ready: PLAINTEXT://127.0.0.1:41234,LAN://[::1]:9\n"


def test_the_log_is_as_quiet_as_it_is_told_to_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start_command, "serve", lambda _config, _outside: 0)
    assert main.main(["start", "--log-level", "error", "--set", "num.partitons=3"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [NewerMetadataError, ReplayError])
def test_metadata_that_cannot_be_understood_is_told_in_one_line(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise error("/data/__cluster_metadata-0 is beyond us")

    monkeypatch.setattr(process, "run", fail)
    assert main.main(["start"]) == 1
    assert capsys.readouterr().err == "barnabas: /data/__cluster_metadata-0 is beyond us\n"
