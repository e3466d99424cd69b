"""`barnabas simulate` in a process of its own, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

LIMIT_S = 600


def simulate(*words: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "barnabas", "simulate", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )


def outcomes(*words: str, hash_seed: str = "random") -> Any:
    """What `--json` prints of runs that break no promise."""
    done = simulate(*words, "--jobs", "1", "--json", hash_seed=hash_seed)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["runs"]
