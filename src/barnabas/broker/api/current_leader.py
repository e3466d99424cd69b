"""The leader of a partition that a client asked the wrong broker for: in Produce and Fetch, the refusal names it, and
its address (KIP-951), so that the client need not ask for metadata first."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.varint import write_uvarint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.replication.replica_manager import ReplicaManager

_LEADER = Struct(">iib")
_I32 = Struct(">i")
_ENDPOINTS_TAG = 0


def write_leader(out: bytearray, tag: int, leader: tuple[int, int]) -> None:
    """A partition's leader and epoch, as a tag."""
    out.append(tag)
    out.append(_LEADER.size)
    out += _LEADER.pack(*leader, 0)


class LeaderAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def leader_addresses(replicas: ReplicaManager, leader_ids: Iterable[int], listener_name: str) -> list[LeaderAddress]:
    """The addresses of those leaders whose address is known."""
    addresses = []
    for leader_id in sorted(set(leader_ids)):
        broker = replicas.broker(leader_id)
        endpoint = broker.endpoint(listener_name) if broker is not None else None
        if broker is not None and endpoint is not None:
            addresses.append(LeaderAddress(leader_id, endpoint.host, endpoint.port, broker.rack))
    return addresses


def leader_endpoints(replicas: ReplicaManager, leader_ids: Iterable[int], listener_name: str) -> bytes:
    """The tags at the end of an answer: the addresses of those leaders."""
    addresses = leader_addresses(replicas, leader_ids, listener_name)
    if not addresses:
        return b"\0"
    array = bytearray()
    write_uvarint(array, len(addresses) + 1)
    for address in addresses:
        array += _I32.pack(address.node_id)
        _write_text(array, address.host)
        array += _I32.pack(address.port)
        _write_text(array, address.rack)
        array.append(0)
    tags = bytearray((1, _ENDPOINTS_TAG))
    write_uvarint(tags, len(array))
    return bytes(tags + array)


def _write_text(out: bytearray, text: str | None) -> None:
    if text is None:
        out.append(0)
        return
    encoded = text.encode()
    write_uvarint(out, len(encoded) + 1)
    out += encoded
