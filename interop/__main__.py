"""`python -m interop`: sets up the toolchains that are there, runs the checks, and sums up what could not be run.

Arguments are passed on to pytest: `--peer=kafka` talks to Apache Kafka instead, `-k streams` chooses.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from interop import toolchains

HERE = Path(__file__).parent
TIMEOUT_S = 300
IMPORTED_BEFORE = "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"
"""What sets up the toolchains has imported the package whose plugin pytest then finds."""


def main(arguments: list[str]) -> int:
    missing = [line for line in map(_prepare, toolchains.TOOLCHAINS) if line is not None]
    options = [
        str(HERE),
        "--verbose",
        "--verbose",
        "--tb=short",
        "--no-header",
        f"--timeout={TIMEOUT_S}",
        "-W",
        IMPORTED_BEFORE,
    ]
    code = pytest.main([*options, *arguments])
    for line in missing:
        print(line)
    return int(code)


def _prepare(toolchain: toolchains.Toolchain) -> str | None:
    """Installs and builds what a toolchain's checks need, or tells that they are not run."""
    print(f"{toolchain.name}: setting up {toolchain.checks} ...", end=" ", flush=True)
    launch = toolchains.prepared(toolchain)
    if isinstance(launch, toolchains.MissingError):
        print("not here")
        return f"not run: {toolchain.checks}: {launch}"
    print("ready")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
