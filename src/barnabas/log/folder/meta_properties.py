"""`meta.properties`: which node and cluster a data folder belongs to. It is written once, when the folder is formatted,
and checked at every start, so that a node never opens the folder of another node or cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.config.properties import PropertiesError, format_properties, parse_properties
from barnabas.log.folder.checkpoints import read_text, write_text
from barnabas.protocol import uuids

if TYPE_CHECKING:
    from barnabas.ports import Disk
    from barnabas.protocol.uuids import Uuid

META_PROPERTIES = "meta.properties"
_VERSION = "1"


class MetaPropertiesError(ValueError):
    """The folder's meta.properties cannot be used; the message says why."""


class DamagedMetaPropertiesError(MetaPropertiesError):
    """It is a meta.properties, but not one that can be read. Kafka takes such a folder for one whose disk has failed,
    whereas a file without a version is none at all and keeps the node from starting."""


class MetaProperties(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: Uuid


def read_meta_properties(disk: Disk, folder: str) -> MetaProperties | None:
    """The meta.properties of a folder; None if it was not formatted."""
    path = f"{folder}/{META_PROPERTIES}"
    text = read_text(disk, path)
    if text is None:
        return None
    try:
        properties = parse_properties(text)
        if "version" not in properties:
            raise MetaPropertiesError(f"{path} has no version")
        if properties["version"] != _VERSION:
            raise DamagedMetaPropertiesError(
                f"{path} has version {properties['version']}, only {_VERSION} is supported"
            )
        return MetaProperties(
            properties["cluster.id"], int(properties["node.id"]), uuids.from_text(properties["directory.id"])
        )
    except KeyError as missing:
        raise DamagedMetaPropertiesError(f"{path} has no {missing.args[0]}") from None
    except MetaPropertiesError:
        raise
    except (PropertiesError, ValueError) as error:
        raise DamagedMetaPropertiesError(f"{path}: {error}") from None


def write_meta_properties(disk: Disk, folder: str, meta: MetaProperties) -> None:
    properties = {
        "version": _VERSION,
        "cluster.id": meta.cluster_id,
        "node.id": str(meta.node_id),
        "directory.id": uuids.to_text(meta.directory_id),
    }
    write_text(disk, f"{folder}/{META_PROPERTIES}", format_properties(properties))
