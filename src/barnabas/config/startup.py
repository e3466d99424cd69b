"""From what the user provides (a properties file, `--set key=value`, nothing at all) to a complete static layer.

Old names are translated, and there are warnings about settings that are unknown or have no effect yet. A node without
`process.roles` becomes both broker and controller: a quorum of one voter with its CONTROLLER listener on loopback.
"""

from collections.abc import Mapping

from barnabas.config import legacy, quorum
from barnabas.config.listeners import PLAINTEXT
from barnabas.config.settings import BROKER, ConfigError, did_you_mean
from barnabas.net.endpoint import Listener

CONTROLLER = "CONTROLLER"
_CONTROLLER_LISTENER = Listener(CONTROLLER, PLAINTEXT, "127.0.0.1", 0)

# A node on its own cannot hold three replicas, so internal topics make do with one.
_REPLICAS_OF_ONE_NODE = {
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}

# Settings of plug-ins and of single listeners: an unknown name with one of these prefixes is not a typo.
_PLUG_IN_PREFIXES = (
    "authorizer.",
    "client.quota.callback.",
    "config.providers.",
    "confluent.",
    "listener.name.",
    "metric.reporters.",
    "principal.builder.",
)
_AUTHORIZER_SETTINGS = ("allow.everyone.if.no.acl.found", "super.users")
_PREFIX_SETTINGS = ("remote.log.metadata.manager.impl.prefix", "remote.log.storage.manager.impl.prefix")


def prepare(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """`given` under current names, and the warnings to print."""
    translated, warnings = legacy.translate(given)
    plug_in_prefixes = (*_PLUG_IN_PREFIXES, *_chosen_prefixes(translated))
    without_effect = []
    for name in translated:
        setting = BROKER.get(name)
        if setting is not None:
            if not setting.acts:
                without_effect.append(name)
        elif name not in _AUTHORIZER_SETTINGS and not name.startswith(plug_in_prefixes):
            warnings.append(f"unknown setting {name} is ignored{did_you_mean(name, BROKER)}")
    if without_effect:
        warnings.append(f"accepted, but without effect in this version: {', '.join(without_effect)}")
    return translated, warnings


def _chosen_prefixes(given: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(given.get(name) or str(BROKER[name].default) for name in _PREFIX_SETTINGS)


def single_node_properties(data_dir: str, host: str, port: int) -> dict[str, str]:
    """The properties of a node that is started without a properties file."""
    listener = Listener(PLAINTEXT, PLAINTEXT, host, port)
    return {"log.dirs": data_dir, "listeners": str(listener), **_REPLICAS_OF_ONE_NODE}


def replace_broker_listeners(properties: Mapping[str, str], host: str, port: int) -> dict[str, str]:
    """The override that makes `host:port` the only client listener and leaves controller listeners as they are."""
    controller_names = _upper_words(properties.get("controller.listener.names", ""))
    named = {_listener_name(entry): entry for entry in _words(properties.get("listeners", ""))}
    name = next((name for name in named if name not in controller_names), PLAINTEXT)
    controllers = [entry for name, entry in named.items() if name in controller_names]
    return {"listeners": ",".join([str(Listener(name, PLAINTEXT, host, port)), *controllers])}


def _words(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]


def _upper_words(text: str) -> list[str]:
    return [word.upper() for word in _words(text)]


def _listener_name(entry: str) -> str:
    return entry.partition("://")[0].upper()


def complete_for_one_node(given: Mapping[str, str]) -> dict[str, str]:
    """`given` with node.id and broker.id filled in from each other, and with both roles if none are set."""
    complete = dict(given)
    if "process.roles" not in complete:
        _take_both_roles(complete)
    if "node.id" not in complete and "broker.id" in complete:
        complete["node.id"] = complete["broker.id"]
    complete.setdefault("broker.id", complete.get("node.id", ""))
    for name, setting in BROKER.items():
        if setting.required and not complete.get(name):
            raise ConfigError(name, f'Missing required configuration "{name}" which has no default value.')
    if "process.roles" in given:
        quorum.require_named_quorum(complete.get(quorum.VOTERS, ""), complete.get(quorum.BOOTSTRAP_SERVERS, ""))
    return complete


def _take_both_roles(complete: dict[str, str]) -> None:
    complete["process.roles"] = "broker,controller"
    if complete.get("broker.id", "-1").strip() == "-1":
        complete.pop("broker.id", None)
        complete.setdefault("node.id", "1")
    if not _words(complete.get("controller.listener.names", "")):
        complete["controller.listener.names"] = CONTROLLER
    controller_names = _upper_words(complete["controller.listener.names"])
    listeners = complete.get("listeners", BROKER["listeners"].default_text)
    names = {_listener_name(entry) for entry in _words(listeners)}
    if names and names.isdisjoint(controller_names):
        add_controller_listener(complete, listeners, _CONTROLLER_LISTENER._replace(name=controller_names[0]))


def add_controller_listener(complete: dict[str, str], listeners: str, controller: Listener) -> None:
    """Adds a controller's listener to `listeners`, and to the map of protocols if it is needed there."""
    complete["listeners"] = f"{listeners},{controller}"
    map_controller_listener(complete, listeners, controller.name)


def map_controller_listener(complete: dict[str, str], listeners: str, name: str) -> None:
    """Gives a controllers' listener, which is not among `listeners`, its protocol."""
    key = "listener.security.protocol.map"
    # If all other listeners are PLAINTEXT and the map is not set, the name needs no entry.
    if key in complete or any(_listener_name(entry) != PLAINTEXT for entry in _words(listeners)):
        protocols = complete.get(key, BROKER[key].default_text)
        if f"{name}:" not in protocols.upper():
            complete[key] = f"{protocols},{name}:{PLAINTEXT}"
