"""Python processes of Spark that live on between tasks.

After each task Spark has such a process look for garbage among all objects that it has, those of the libraries that it
has imported included: 20 ms each time, of which a trigger of a small query had ten. Objects that are there when the
first task begins stay for as long as the process does, and are left out of that from then on.
"""

from __future__ import annotations

import gc
import os

_frozen_process_id: int | None = None


def freeze_libraries() -> None:
    """Called by tasks when what they need is imported; does its work once in a process."""
    global _frozen_process_id
    if _frozen_process_id != os.getpid():
        _frozen_process_id = os.getpid()
        gc.collect()
        gc.freeze()
