"""`barnabas kafka install` and `home`: what they write, and what they leave alone."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.kafka.catalogue import ABSENT, TOOLS
from barnabas.cli.kafka.scripts.home_command import configs
from barnabas.cli.main import main
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.properties import parse_properties
from barnabas.config.settings import BROKER

if TYPE_CHECKING:
    from pathlib import Path

COMMAND_S = 60


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of the PATH, which has nothing of Kafka's."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return folder


def kafkas_own(folder: Path) -> Path:
    script = folder / "kafka-topics.sh"
    script.write_text('#!/bin/bash\nexec $(dirname $0)/kafka-run-class.sh org.apache.kafka.tools.TopicCommand "$@"\n')
    script.chmod(0o755)
    return script


def test_all_tools_are_installed_with_and_without_sh(
    elsewhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a folder" / "bin"
    assert main(["kafka", "install", str(folder)]) == 0
    assert f'export PATH="{folder}:$PATH"' in capsys.readouterr().out
    names = {*TOOLS, *ABSENT}
    assert {each.name for each in folder.iterdir()} == names | {f"{name}.sh" for name in names}

    done = subprocess.run(
        [folder / "kafka-storage.sh", "version-mapping", "-r", "3.9"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=COMMAND_S,
    )
    assert done.stdout.startswith("metadata.version=21 (3.9)\nkraft.version=1\n")

    assert main(["kafka", "install", "--remove", str(folder)]) == 0
    assert list(folder.iterdir()) == []


def test_a_script_passes_on_what_it_is_given_whatever_that_is(elsewhere: Path, tmp_path: Path) -> None:
    assert main(["kafka", "install", str(tmp_path / "bin")]) == 0
    strange = "a 'b' \"c\" $d *"
    done = subprocess.run(
        [tmp_path / "bin" / "kafka-storage", "feature-dependencies", "-f", strange],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_S,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"Invalid feature format: {strange}. ")


def test_kafkas_own_tools_are_not_hidden_unless_that_is_wanted(
    elsewhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = kafkas_own(elsewhere)
    folder = tmp_path / "bin"
    assert main(["kafka", "install", str(folder)]) == 1
    assert f"{own} is another kafka-topics.sh" in capsys.readouterr().err
    assert not folder.exists()
    assert main(["kafka", "install", "--hide-kafka", str(folder)]) == 0
    assert (folder / "kafka-topics.sh").exists()


def test_what_is_not_ours_is_never_overwritten_or_removed(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = kafkas_own(elsewhere)
    text = own.read_text()
    for words in (["install"], ["install", "--hide-kafka"]):
        assert main(["kafka", *words, str(elsewhere)]) == 1
        assert "left alone" in capsys.readouterr().err
    assert main(["kafka", "install", "--remove", str(elsewhere)]) == 0
    assert own.read_text() == text


def test_installing_again_is_no_matter(elsewhere: Path) -> None:
    assert main(["kafka", "install", str(elsewhere)]) == 0
    assert main(["kafka", "install", str(elsewhere)]) == 0


def test_a_home_has_what_tutorials_name_and_keeps_what_was_changed_in_it(
    elsewhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "kafka"
    assert main(["kafka", "home", str(home)]) == 0
    assert {each.name for each in (home / "bin").iterdir()} == {f"{name}.sh" for name in {*TOOLS, *ABSENT}}
    changed = home / "config" / "server.properties"
    changed.write_text("node.id=5\n")
    capsys.readouterr()
    assert main(["kafka", "home", str(home)]) == 0
    assert f"{changed} is there already" in capsys.readouterr().out
    assert changed.read_text() == "node.id=5\n"
    assert (home / "config" / "kraft" / "server.properties").exists()


def test_a_home_is_not_written_over_kafkas_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bin").mkdir()
    own = kafkas_own(tmp_path / "bin")
    text = own.read_text()
    assert main(["kafka", "home", str(tmp_path)]) == 1
    assert "seems to be Apache Kafka's own" in capsys.readouterr().err
    assert own.read_text() == text


@pytest.mark.parametrize("name", ["server.properties", "kraft/server.properties"])
def test_the_settings_of_a_home_are_all_known_and_explained_ones_have_their_defaults(name: str) -> None:
    text = configs()[name]
    properties = parse_properties(text)
    config, warnings = BrokerConfig.from_properties(properties)
    assert warnings == []
    assert (config.node_id, config.log_dirs) == (1, ("/tmp/kraft-combined-logs",))
    assert bool(config.quorum_voters) == name.startswith("kraft")

    examples = {"broker.rack", "advertised.listeners", "metadata.log.dir", "log.flush.interval.ms"}
    commented = parse_properties(
        "\n".join(line[1:] for line in text.splitlines() if line.startswith("#") and line[1:2].islower())
    )
    assert len(commented) > 30
    for setting, value in commented.items():
        known = BROKER[setting]
        if setting not in examples:
            assert known.parse(value) == known.default, f"{setting}={value} is not the default"
