"""The programs of the page on pipelines run as they stand, but for the address, and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.peers import Peer

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
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
