"""What tests and benchmarks install or build once and keep outside the tree: `~/.cache/barnabas`."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, made by `make` in a place of its own unless it is there already.

    A lock lets one of several concurrent callers do the work; a rename makes the folder appear whole or not at all,
    so that a run that was killed half way leaves nothing that a later one would trust.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(prefix="making-", dir=folder.parent) as scratch:
                made = Path(scratch) / folder.name
                made.mkdir()
                make(made)
                os.rename(made, folder)
    return folder
