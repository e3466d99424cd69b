"""Asks Apache Kafka's own classes what they make of a group."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tools import apache_kafka

if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAM = Path(__file__).with_name("GroupOracle.java")


def ask_kafka(questions: Iterable[Any]) -> list[Any]:
    """The answers to questions in the form of GroupOracle.java."""
    if shutil.which("javac") is None:
        pytest.skip("needs a JDK, not only a Java runtime, to compile a program against Kafka's classes")
    command = [*apache_kafka.java_command(), str(PROGRAM)]
    lines = "".join(f"{json.dumps(question)}\n" for question in questions)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=100)
    return [json.loads(line) for line in done.stdout.splitlines()]
