"""The demo tells why it ended."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from examples.demo.__main__ import DemoError, Pipeline

from tests.peers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_pipeline_that_has_ended_by_itself_can_still_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    pipeline = Pipeline("localhost:9092", tmp_path / "checkpoint", tmp_path / "log")
    pipeline.start()

    def has_ended() -> bool:
        try:
            pipeline.require_running()
        except DemoError:
            return True
        return False

    wait_until(has_ended, "the demo notices that its pipeline has ended")
    pipeline.end(signal.SIGKILL)
