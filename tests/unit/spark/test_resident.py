"""What a process of Spark has imported is no longer looked through for garbage."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, os
from barnabas.spark.resident import freeze_libraries
freeze_libraries()
first = gc.get_freeze_count()
assert first > 1000, first
class Later:
    pass
freeze_libraries()
assert gc.get_freeze_count() == first, "it is done once"
if os.fork() == 0:
    freeze_libraries()
    os._exit(0 if gc.get_freeze_count() > first else 1)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, "a child does it for itself"
"""


def test_a_process_freezes_its_libraries_once() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
