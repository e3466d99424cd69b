"""One load in this process: its description comes as JSON on standard input, its figures leave as JSON."""

from __future__ import annotations

import json
import sys

from bench.loads import (
    consume,
    failover,
    offset_commits,
    produce,
    requests,
    rolling,
    roundtrip,
    session_fetches,
    transactions,
)


def main() -> None:
    name, said = sys.argv[1], json.load(sys.stdin)
    match name:
        case "produce":
            figures = produce.run(produce.ProduceLoad(**said))
        case "consume":
            figures = consume.run(consume.ConsumeLoad(**said))
        case "requests":
            figures = requests.run(requests.RequestsLoad(**said))
        case "roundtrip-idle":
            figures = roundtrip.run_idle(requests.RequestsLoad(**said))
        case "roundtrip-loaded":
            base = requests.RequestsLoad(**said.pop("requests"))
            figures = roundtrip.run_open_loop(roundtrip.OpenLoopLoad(requests=base, **said))
        case "session-fetches":
            figures = session_fetches.run(session_fetches.SessionLoad(**said))
        case "offset-commits":
            figures = offset_commits.run(offset_commits.OffsetCommitsLoad(**said))
        case "transactions":
            figures = transactions.run_rate(transactions.TransactionsLoad(**said))
        case "read-committed":
            figures = transactions.run_latency(transactions.TransactionsLoad(**said))
        case "rolling-restart":
            figures = rolling.run(rolling.RollingLoad(**said))
        case "leader-failover":
            figures = failover.run_leader(failover.LeaderLoad(**said))
        case "controller-failover":
            figures = failover.run_controller(failover.ControllerLoad(**said))
        case _:
            raise SystemExit(f"no load is called {name!r}")
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
