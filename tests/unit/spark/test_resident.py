"""What a process of Spark has imported is no longer looked through for garbage."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, os
from barnabas.spark.resident import settle
settle()
first = gc.get_freeze_count()
assert first > 1000, first
class Later:
    pass
settle()
assert gc.get_freeze_count() == first, "it is done once"
if os.fork() == 0:
    settle()
    os._exit(0 if gc.get_freeze_count() > first else 1)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, "a child has settled by itself"
"""


def test_a_process_settles_once() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
