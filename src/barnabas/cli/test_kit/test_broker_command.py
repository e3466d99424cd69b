"""`barnabas test-broker`: a broker, or a cluster, for tests in any language.

It prints one line of JSON with the address when it is ready, and ends when its parent does, or on SIGTERM. What it is
told on standard input, line by line, is what a test in Python calls on `barnabas.testing.Broker`; each line is answered
by one. Standard input may also be closed, or /dev/null: it ends nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.command_line import EXIT_OK, CommandError, Parser, add_overrides, positive_int
from barnabas.testing.kit.broker import Broker
from barnabas.testing.kit.cluster import Cluster
from barnabas.testing.kit.faults import FaultError
from barnabas.testing.node_process import NodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

EPILOG: Final = """examples:
  barnabas test-broker
  barnabas test-broker --topic orders:3 --set auto.create.topics.enable=false
  barnabas test-broker --nodes 3

Standard output has one line when the broker is ready:
  {"bootstrap": "127.0.0.1:40001", "pid": 4711, "brokers": {"1": "127.0.0.1:40001"}}
Then, for each line on standard input, one in answer; "node" chooses one of several:
  {"do": "kill"}      or stop, start, restart, pause, resume                         {}
  {"do": "kill", "node": 2}                                                          {}
  {"do": "begin", "fault": "answer", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
                                                                                     {"fault": 1}
      or the faults drop_acknowledgements, delay, cut, refuse_connections, fill_disk, fail_fsync, jump_clock
  {"do": "struck", "fault": 1}      how often it has struck                          {"struck": 2}
  {"do": "end", "fault": 1}         or "all"                                         {}
What cannot be done is answered by {"error": "..."}. All data is gone at the end.
"""
_LINE_BYTES: Final = 64 * 1024
_PARENT_LOOK_MS: Final = 500
"""How often it is looked whether the parent is still there, where the system cannot tell."""


class UnknownRequestError(Exception):
    """What was asked for on standard input does not exist."""


class Ended(Exception):  # noqa: N818 - nothing is wrong
    """A signal says that it is time to end."""


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    parent = os.getppid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end)
    settings = dict(options.overrides)
    try:
        with contextlib.suppress(Ended):
            if options.nodes is None:
                with Broker(settings=settings) as broker:
                    serve(broker, {1: broker}, options.topics, parent)
            else:
                with Cluster(nodes=options.nodes, settings=settings) as cluster:
                    serve(cluster, {each: cluster[each] for each in cluster.nodes}, options.topics, parent)
    except NodeError as error:
        raise CommandError(str(error)) from error
    return EXIT_OK


def build_parser() -> Parser:
    parser = Parser("barnabas test-broker", "A broker for tests, which ends with the process that started it.", EPILOG)
    parser.add_argument("--nodes", type=positive_int, metavar="N", help="a cluster of N nodes instead of one broker")
    add_overrides(parser, "a broker setting; may be given several times")
    parser.add_argument(
        "--topic",
        dest="topics",
        type=parse_topic,
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="a topic that is there when the broker is ready; may be given several times",
    )
    return parser


def parse_topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    return name, positive_int(partitions) if partitions else 1


def serve(
    system: Broker | Cluster, brokers: Mapping[int, Broker], topics: Sequence[tuple[str, int]], parent: int
) -> None:
    """Returns when the parent is gone."""
    for name, partitions in topics:
        system.create_topic(name, partitions=partitions)
    say(
        {
            "bootstrap": system.bootstrap,
            "pid": os.getpid(),
            "brokers": {str(node_id): broker.bootstrap for node_id, broker in brokers.items()},
        }
    )
    with Parent(parent) as watched:
        received = b""
        poll = select.poll()
        poll.register(sys.stdin.fileno(), select.POLLIN)
        if watched.fd is not None:
            poll.register(watched.fd, select.POLLIN)
        while watched.is_there():
            readable = {fd for fd, _ in poll.poll(None if watched.fd is not None else _PARENT_LOOK_MS)}
            if sys.stdin.fileno() in readable:
                data = os.read(sys.stdin.fileno(), _LINE_BYTES)
                if not data:
                    poll.unregister(sys.stdin.fileno())
                *lines, received = (received + data).split(b"\n")
                for line in lines:
                    say(answer(line, brokers))


class Parent:
    """The process that started this one. `fd` is readable when it has ended, where the system has that."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.fd: int | None = None

    def is_there(self) -> bool:
        return os.getppid() == self._pid

    def __enter__(self) -> Parent:
        with contextlib.suppress(OSError, AttributeError):
            self.fd = os.pidfd_open(self._pid)
        return self

    def __exit__(self, *_: object) -> None:
        if self.fd is not None:
            os.close(self.fd)


def say(what: Mapping[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def answer(line: bytes, brokers: Mapping[int, Broker]) -> dict[str, Any]:
    try:
        return obey(json.loads(line), brokers)
    except (FaultError, NodeError, UnknownRequestError) as error:
        return {"error": str(error)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return {"error": f"{line.decode(errors='replace')} cannot be understood: {error!r}"}


def obey(asked: dict[str, Any], brokers: Mapping[int, Broker]) -> dict[str, Any]:
    """Carries out one line."""
    what = asked.pop("do")
    node_id = int(asked.pop("node", next(iter(brokers))))
    if node_id not in brokers:
        raise UnknownRequestError(f"there is no node {node_id}: there are {', '.join(map(str, brokers))}")
    broker = brokers[node_id]
    match what:
        case "begin":
            return broker.faults.ask({"begin": asked.pop("fault"), **asked})
        case "struck" | "end":
            return broker.faults.ask({what: asked["fault"]})
    steps: dict[str, Callable[[], object]] = {
        "kill": broker.kill,
        "stop": broker.stop,
        "start": broker.start,
        "restart": broker.restart,
        "pause": broker.pause,
        "resume": broker.resume,
    }
    if what not in steps:
        raise UnknownRequestError(f"unknown: {what!r}; known: {', '.join([*steps, 'begin', 'struck', 'end'])}")
    steps[what]()
    return {}


def _end(*_: object) -> None:
    raise Ended
