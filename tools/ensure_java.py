"""`python -m tools.ensure_java`: Java for Spark. Finds it, installs it where it can, or says in one line what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from barnabas.spark.java import VERSION_MIN, JavaMissingError, find_java

PACKAGES = (f"openjdk-{VERSION_MIN}-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
"""As Debian and Ubuntu call it: older releases have the first, newer ones the others."""


def main() -> int:
    try:
        find_java()
    except JavaMissingError as missing:
        if not _install():
            print(missing, file=sys.stderr)
            return 1
        try:
            find_java()
        except JavaMissingError as still_missing:
            print(still_missing, file=sys.stderr)
            return 1
    return 0


def _install() -> bool:
    """Whether a package was installed: by root, where there is `apt-get`."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    print("Spark needs Java, which is installed now", file=sys.stderr)
    subprocess.run(["apt-get", "update", "-qq"], check=False)
    return any(
        subprocess.run(
            ["apt-get", "install", "-qq", "--yes", "--no-install-recommends", package], check=False
        ).returncode
        == 0
        for package in PACKAGES
    )


if __name__ == "__main__":
    sys.exit(main())
