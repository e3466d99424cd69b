"""What the properties and the folder of a controller say of it, for the quorum that is to let it vote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.kafka.cluster_access import read_properties_file
from barnabas.cli.kafka.flags import read_int
from barnabas.cli.kafka.java.java_ids import IdError, read_id
from barnabas.cli.kafka.tool import ToolError
from barnabas.client.admin.cluster_state import QuorumListener
from barnabas.config.listeners import PLAINTEXT, parse_listeners
from barnabas.config.values import ConfigError
from barnabas.log.folder.meta_properties import META_PROPERTIES

if TYPE_CHECKING:
    from barnabas.protocol.uuids import Uuid

NODE_ID: Final = "node.id"
ROLES: Final = "process.roles"
METADATA_FOLDER: Final = "metadata.log.dir"
FOLDERS: Final = "log.dirs"
CONTROLLER_LISTENERS: Final = "controller.listener.names"
_DOUBT: Final = "Is this a valid controller configuration file?"


class ControllerProperties(NamedTuple):
    node_id: int
    directory_id: Uuid
    listeners: list[QuorumListener]


def controller_of(properties: dict[str, str]) -> ControllerProperties:
    """ToolError for a file of anybody else than a controller."""
    node_id = _node_id(properties)
    return ControllerProperties(node_id, _directory_id(_metadata_folder(properties)), _listeners(properties))


def _node_id(properties: dict[str, str]) -> int:
    if NODE_ID not in properties:
        raise ToolError(f"{NODE_ID} not found in configuration file. {_DOUBT}")
    text = properties[NODE_ID]
    try:
        node_id = read_int(text)
    except ValueError:
        raise ToolError(f'For input string: "{text}"') from None
    if node_id < 0:
        raise ToolError(f"{NODE_ID} was negative in configuration file. {_DOUBT}")
    if "controller" not in properties.get(ROLES, ""):
        raise ToolError(f"{ROLES} did not contain 'controller' in configuration file. {_DOUBT}")
    return node_id


def _metadata_folder(properties: dict[str, str]) -> str:
    if METADATA_FOLDER in properties:
        return properties[METADATA_FOLDER]
    if FOLDERS in properties:
        return properties[FOLDERS].strip().split(",")[0]
    raise ToolError(f"Neither {METADATA_FOLDER} nor {FOLDERS} were found. {_DOUBT}")


def _directory_id(folder: str) -> Uuid:
    try:
        identity = read_properties_file(f"{folder}/{META_PROPERTIES}")
    except ToolError as failure:
        raise ToolError(f"Unable to read {META_PROPERTIES} from {folder}", hint=failure.hint) from None
    missing = [name for name in ("cluster.id", "node.id") if name not in identity]
    if missing:
        raise ToolError(f"Unable to read {META_PROPERTIES} from {folder}", hint=f"{missing[0]} was not found.")
    if "directory.id" not in identity:
        raise ToolError(f"No directory id found in {folder}")
    try:
        return read_id(identity["directory.id"])
    except IdError as error:
        raise ToolError(str(error)) from None


def _listeners(properties: dict[str, str]) -> list[QuorumListener]:
    by_name: dict[str, QuorumListener] = {}
    for setting in ("listeners", "advertised.listeners"):
        for listener in _parsed(setting, properties.get(setting, "")):
            by_name[listener.name] = listener
    if CONTROLLER_LISTENERS not in properties:
        raise ToolError(f"{CONTROLLER_LISTENERS} was not found. {_DOUBT}")
    found = []
    for text in properties[CONTROLLER_LISTENERS].split(","):
        name = text.upper()
        if name not in by_name:
            raise ToolError(f"Cannot find information about controller listener name: {name}")
        found.append(by_name[name])
    return found


def _parsed(setting: str, text: str) -> list[QuorumListener]:
    entries = [part.strip() for part in text.split(",") if part.strip()]
    # What they speak is nothing that the quorum is told.
    protocols = {entry.partition(":")[0].upper(): PLAINTEXT for entry in entries}
    try:
        listeners = parse_listeners(setting, entries, protocols)
    except ConfigError as error:
        raise ToolError(str(error)) from None
    return [QuorumListener(each.name, each.host or "localhost", each.port) for each in listeners]
