"""kafka-server-stop: ends the nodes that kafka-server-start runs on this machine, all of them or some by their role or
number."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.catalogue import canonical_name
from barnabas.cli.kafka.cluster_access import parse_pairs, read_properties_file
from barnabas.cli.kafka.server.server_start import DAEMON, FLAGS
from barnabas.cli.kafka.tool import ToolError, print_help

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROCESSES: Final = "/proc"
_USAGE: Final = "USAGE: kafka-server-stop [--process-role=ROLES] [--node-id=N]"


class ServerProcess(NamedTuple):
    pid: int
    words: list[str]
    """What it was given: the file, and overrides."""


def run(words: list[str]) -> int:
    if "--help" in words:
        return print_help(_USAGE, "Without either, all nodes that kafka-server-start runs on this machine are stopped.")
    wanted = {"process.roles": _value(words, "--process-role="), "node.id": _value(words, "--node-id=")}
    if all(wanted.values()):
        print("When both node-id and process-role are provided, the value for node-id will take precedence")
        wanted["process.roles"] = None
    servers = list(running_servers())
    if not servers:
        raise ToolError(
            "No kafka server to stop",
            is_error_output=False,
            hint="a node that `barnabas start` runs is stopped by Ctrl-C, or by SIGTERM",
        )
    for server in servers:
        if _is_meant(server, wanted):
            _terminate(server)
    return EXIT_OK


def running_servers() -> Iterator[ServerProcess]:
    """The nodes that were started by kafka-server-start, whoever did that."""
    for name in os.listdir(_PROCESSES):
        if name.isdecimal() and (words := _server_words(int(name))) is not None:
            yield ServerProcess(int(name), words)


def _server_words(pid: int) -> list[str] | None:
    try:
        with open(f"{_PROCESSES}/{pid}/cmdline", "rb") as file:
            command = os.fsdecode(file.read()).split("\0")[:-1]
    except OSError:
        return None  # it has ended, or is nobody's business
    if not command or not os.path.basename(command[0]).startswith("python"):
        return None  # something that waits for a node, such as `timeout`
    for at, word in enumerate(command[1:-1], start=1):
        if word == "kafka" and canonical_name(command[at + 1]) == "kafka-server-start":
            words = command[at + 2 :]
            return words[1:] if words[:1] == [DAEMON] else words
    return None


def _is_meant(server: ServerProcess, wanted: dict[str, str | None]) -> bool:
    if not any(wanted.values()):
        return True
    file, *others = server.words
    properties = read_properties_file(os.path.join(os.readlink(f"{_PROCESSES}/{server.pid}/cwd"), file))
    properties |= parse_pairs(FLAGS.read(others).texts("override"))
    return all(value is None or properties.get(name) == value for name, value in wanted.items())


def _terminate(server: ServerProcess) -> None:
    number = signal.Signals[f"SIG{os.environ.get('SIGNAL', 'TERM').removeprefix('SIG')}"]
    try:
        os.kill(server.pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        raise ToolError(f"process {server.pid} is somebody else's, and cannot be stopped") from None


def _value(words: list[str], flag: str) -> str | None:
    return next((word.removeprefix(flag) for word in reversed(words) if word.startswith(flag)), None)
