"""The programs of the page on pipelines, and the pipeline of the README, run as they stand, but for the address, and do
what these pages say."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.topics import produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.peers import Peer

ROOT = Path(__file__).parents[2]
PAGE, README = ROOT / "docs" / "pipelines.md", ROOT / "README.md"
ADDRESS = "127.0.0.1:9092"


def test_the_programs_on_pipelines_print_what_the_page_says(spark: SparkSession, node: Peer) -> None:
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks].count("text") == 5
    names: dict[str, Any] = {}
    printed = ""
    for kind, content in blocks:
        if kind == "python":
            assert printed == "", "the page shows what the program before this one prints"
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(content.replace(ADDRESS, node.bootstrap), str(PAGE), "exec"), names)
            printed = output.getvalue()
        else:
            assert printed == content
            printed = ""


def test_the_first_pipeline_of_the_readme_shouts_what_it_reads(
    spark: SparkSession, fresh_node: Peer, tmp_path: Path
) -> None:
    blocks = r"^```python\n(import barnabas.*?)^```\n\n```sh\n(.*?)^```$"
    found = re.search(blocks, README.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    program = found[1].replace(ADDRESS, fresh_node.bootstrap).replace("shouts-checkpoint", f"{tmp_path}/checkpoint")
    commands = found[2].splitlines()
    assert commands[1] == "python shout.py"
    produce(fresh_node, "greetings", ["hello from librdkafka"])
    command_line(fresh_node, commands[0])
    shouts, _, said = commands[2].partition("#")
    exec(compile(program, str(README), "exec"), {})
    assert command_line(fresh_node, shouts) == [said.strip()]
    produce(fresh_node, "greetings", ["hello again"])
    exec(compile(program, str(README), "exec"), {})
    assert command_line(fresh_node, shouts) == [said.strip(), "HELLO AGAIN"]


def command_line(node: Peer, command: str) -> list[str]:
    """What a command prints, line by line."""
    program, *arguments = command.split()
    assert program == "barnabas"
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments, "--bootstrap-server", node.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
