"""A process that behaves towards its supervisor as a node does, and writes down what happens to it.

pretend_node.py JOURNAL NAME WAY…, where the ways are: `fails` at its start, `clings` and does not end when it is told
to, `slow` to stop, `chatty` about it.
"""

from __future__ import annotations

import os
import signal
import sys
import time


def main() -> int:
    journal, name, *ways = sys.argv[1:]

    def note(what: str) -> None:
        with open(journal, "a", encoding="utf-8") as file:
            file.write(f"{name} {what} {os.getpid()}\n")

    told = {signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, told)
    note("starts")
    if "fails" in ways:
        print("listeners is wrong", file=sys.stderr, flush=True)
        return 3
    print(f"barnabas ready: PLAINTEXT://{name}:1", flush=True)
    while True:
        number = signal.sigwait(told)
        if "clings" in ways:
            note("clings")
            continue
        if "slow" in ways:
            time.sleep(0.3)
        if number == signal.SIGUSR1:
            note("has no broker any more")
            print("barnabas broker stopped", flush=True)
        else:
            note("ends")
            return 0


if __name__ == "__main__":
    sys.exit(main())
