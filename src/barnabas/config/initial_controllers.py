"""The first voters of a cluster, as `--initial-controllers` writes them: `id@host:port:directory-id`, with commas.

The same list is given when each node of the cluster is formatted, so the directory ids are chosen before the folders
exist. The messages are those of Kafka's `kafka-storage format`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.config.quorum import address_text
from barnabas.protocol import uuids
from barnabas.protocol.uuids import Uuid

PORT_MAX = 65_535


class InitialController(NamedTuple):
    node_id: int
    host: str
    port: int
    directory_id: Uuid

    def __str__(self) -> str:
        return f"{self.node_id}@{address_text(self.host, self.port)}:{uuids.to_text(self.directory_id)}"


def parse_initial_controllers(text: str) -> tuple[InitialController, ...]:
    """The voters in the order of their ids. Raises ValueError with Kafka's message."""
    voters: dict[int, InitialController] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        voter = parse_initial_controller(entry)
        if voter.node_id in voters:
            raise ValueError(f"Node id {voter.node_id} was specified more than once.")
        voters[voter.node_id] = voter
    if not voters:
        raise ValueError("No voters given.")
    return tuple(voters[node_id] for node_id in sorted(voters))


def format_initial_controllers(voters: Iterable[InitialController]) -> str:
    return ",".join(map(str, voters))


def parse_initial_controller(entry: str) -> InitialController:
    id_text, at, rest = entry.partition("@")
    if not at:
        raise ValueError("No @ found in dynamic voter string.")
    if not id_text:
        raise ValueError("Invalid @ at beginning of dynamic voter string.")
    node_id = _number(id_text)
    if node_id is None:
        raise ValueError("Failed to parse node id in dynamic voter string.")
    if node_id < 0:
        raise ValueError(f"Invalid negative node id {node_id} in dynamic voter string.")
    if not rest:
        raise ValueError("No hostname found after node id.")
    host, rest = _split_host(rest)
    port_text, colon, directory_text = rest.partition(":")
    if not colon:
        raise ValueError("No colon following port could be found.")
    port = _number(port_text)
    if port is None:
        raise ValueError("Failed to parse port in dynamic voter string.")
    if not 0 <= port <= PORT_MAX:
        raise ValueError(f"Invalid port {port} in dynamic voter string.")
    try:
        directory_id = uuids.from_text(directory_text)
    except ValueError:
        raise ValueError("Failed to parse directory ID in dynamic voter string.") from None
    return InitialController(node_id, host, port, directory_id)


def _split_host(text: str) -> tuple[str, str]:
    """Host and what follows the colon after it."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise ValueError("Hostname began with left bracket, but no right bracket was found.")
        if not rest.startswith(":"):
            raise ValueError("Port section must start with a colon.")
        return host, rest[1:]
    host, colon, rest = text.partition(":")
    if not colon:
        raise ValueError("No colon following hostname could be found.")
    return host, rest


def _number(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("-", "+") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 10 else None
