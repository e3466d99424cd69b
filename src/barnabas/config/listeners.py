"""Listeners: where the node listens, and which addresses it tells clients to connect to.

A listener has a name, and a map gives each name a security protocol; by default PLAINTEXT, SSL, SASL_PLAINTEXT and
SASL_SSL map to themselves. Listeners named in `controller.listener.names` serve the metadata quorum, all others serve
clients and brokers. Port 0 means any free port; the actual one is known once the socket is bound.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.config.values import ConfigError
from barnabas.net.endpoint import Listener

PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WILDCARD_HOSTS = ("0.0.0.0", "::")  # noqa: S104 (named here to be refused as an advertised address)


class QuorumListener(NamedTuple):
    """The listener by which a node reaches the controllers: the first of `controller.listener.names`."""

    name: str
    security_protocol: str


def parse_protocol_map(text: str) -> dict[str, str]:
    """`listener.security.protocol.map`: security protocol by listener name; names are upper case."""
    key = "listener.security.protocol.map"
    protocols = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip() for part in entry.rpartition(":"))
        if not colon or not name:
            raise ConfigError(key, f"Invalid entry `{entry}` in {key}; entries have the form NAME:PROTOCOL")
        if protocol.upper() not in SECURITY_PROTOCOLS:
            valid = ", ".join(SECURITY_PROTOCOLS)
            raise ConfigError(
                key, f"Invalid security protocol `{protocol}` defined in {key}; valid protocols are {valid}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_listeners(key: str, entries: Iterable[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """The listeners of one setting. Rejects names that have no security protocol, and duplicate names."""
    listeners: list[Listener] = []
    for entry in entries:
        listener = _parse_listener(key, entry, protocols)
        if any(listener.name == other.name for other in listeners):
            raise ConfigError(
                key, f"{key} contains {listener.name} more than once. Each listener must have a different name."
            )
        listeners.append(listener)
    return tuple(listeners)


def _parse_listener(key: str, entry: str, protocols: Mapping[str, str]) -> Listener:
    parsed = re.fullmatch(r"([^:/]+)://(?:\[([0-9A-Fa-f:.%a-z]+)\]|([^:\[\]/]*)):([0-9]{1,5})", entry.strip())
    if parsed is None or int(parsed.group(4)) > 65535:
        raise ConfigError(key, f"Unable to parse {entry} in {key}; listeners have the form NAME://host:port")
    name = parsed.group(1).upper()
    protocol = protocols.get(name)
    if protocol is None:
        advice = f"add {name}:PLAINTEXT, or whichever protocol it uses, to listener.security.protocol.map"
        raise ConfigError(key, f"No security protocol defined for listener {name} in {key}; {advice}")
    return Listener(name, protocol, parsed.group(2) or parsed.group(3) or "", int(parsed.group(4)))


def refuse_shared_ports(key: str, listeners: Iterable[Listener]) -> None:
    """Rejects two listeners on the same port, unless one has an IPv4 and the other an IPv6 address."""
    by_port: dict[int, Listener] = {}
    for listener in listeners:
        other = by_port.setdefault(listener.port, listener) if listener.port else listener
        if other is listener:
            continue
        if not _are_of_both_families(listener.host, other.host):
            raise ConfigError(key, f"{key} has {other} and {listener}. Each listener must have a different port.")


def _are_of_both_families(host: str, other: str) -> bool:
    is_ipv4 = re.compile(r"[0-9]+(\.[0-9]+){3}").fullmatch
    return bool((":" in host and is_ipv4(other)) or (":" in other and is_ipv4(host)))


def require_plaintext(listeners: Iterable[Listener]) -> None:
    """Rejects listeners whose security protocol this version does not support."""
    for listener in listeners:
        if listener.security_protocol != PLAINTEXT:
            raise ConfigError(
                "listeners",
                f"listener {listener} uses {listener.security_protocol}, which is not supported yet; "
                "only PLAINTEXT listeners can be used",
            )


def require_plaintext_quorum(listener: QuorumListener) -> None:
    """Rejects controllers that are reached by a security protocol which this version does not support."""
    if listener.security_protocol != PLAINTEXT:
        raise ConfigError(
            "controller.listener.names",
            f"controllers are reached by listener {listener.name}, which uses {listener.security_protocol}; that is "
            "not supported yet, and only PLAINTEXT listeners can be used",
        )


def advertise(
    listeners: Iterable[Listener], advertised: tuple[Listener, ...] | None, canonical_host: str | None = None
) -> tuple[Listener, ...]:
    """The addresses to advertise for broker listeners, where `advertised` comes from `advertised.listeners`.

    An empty host becomes the canonical name of this machine. An address that cannot be connected to (0.0.0.0) is
    rejected, with a suggestion for `advertised.listeners`.
    """
    key = "advertised.listeners"
    for listener in advertised or listeners:
        if listener.host not in WILDCARD_HOSTS:
            continue
        if advertised:
            raise _nonroutable(listener, canonical_host or canonical_host_name())
        suggested = listener._replace(host=canonical_host or canonical_host_name())
        problem = f"{listener} listens on all interfaces, so clients need an address to connect to; add"
        raise ConfigError(
            key, f"{problem} {key}={suggested} (or the name or address by which clients reach this machine)"
        )
    return tuple(
        listener if listener.host else listener._replace(host=canonical_host or canonical_host_name())
        for listener in advertised or listeners
    )


def _nonroutable(listener: Listener, host: str) -> ConfigError:
    key = "advertised.listeners"
    return ConfigError(
        key,
        f"{key} cannot use the nonroutable meta-address {listener.host}. Use a routable IP address, such as "
        f"{key}={listener._replace(host=host)} (or the name or address by which others reach this machine)",
    )


def canonical_host_name() -> str:
    """The fully qualified name of this machine."""
    import socket

    return socket.getfqdn()


class NodeListeners(NamedTuple):
    """All listeners of a node: `broker` listeners serve clients, `controller` listeners serve the quorum."""

    broker: tuple[Listener, ...]
    controller: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    advertised_controller: tuple[Listener, ...]
    inter_broker_name: str
    quorum: QuorumListener


class ListenerSettings(NamedTuple):
    """The settings from which listeners are resolved."""

    roles: tuple[str, ...]
    listeners: tuple[str, ...]
    advertised: tuple[str, ...] | None
    protocol_map: str
    protocol_map_is_given: bool
    controller_names: tuple[str, ...]
    inter_broker_name: str | None
    inter_broker_protocol: str
    inter_broker_protocol_is_given: bool
    early_start: tuple[str, ...]


def resolve_listeners(given: ListenerSettings) -> NodeListeners:
    """The listeners and advertised listeners. Raises `ConfigError` if the settings contradict each other."""
    controller_names = tuple(name.upper() for name in given.controller_names)
    protocols = _protocols_with_controllers(given, controller_names)
    listeners = parse_listeners("listeners", given.listeners, protocols)
    refuse_shared_ports("listeners", listeners)
    controllers = tuple(listener for listener in listeners if listener.name in controller_names)
    brokers = tuple(listener for listener in listeners if listener.name not in controller_names)
    _require_roles_to_fit(given.roles, listeners, controllers, controller_names)
    _require_protocols(controller_names, protocols)
    advertised = None
    if given.advertised is not None:
        advertised = parse_listeners("advertised.listeners", given.advertised, protocols)
    inter_broker_name = _inter_broker_name(given, protocols)
    own_advertised: tuple[Listener, ...] = ()
    if "broker" in given.roles:
        own_advertised = tuple(one for one in advertised or brokers if one.name not in controller_names)
        _require_advertised(own_advertised, listeners, inter_broker_name)
    _require_early_listeners(given.early_start, {listener.name for listener in listeners})
    return NodeListeners(
        broker=brokers,
        controller=controllers,
        advertised=advertise(brokers, own_advertised if advertised else None),
        advertised_controller=_advertise_controllers(controllers, advertised or ()),
        inter_broker_name=inter_broker_name,
        quorum=QuorumListener(controller_names[0], protocols[controller_names[0]]),
    )


def _protocols_with_controllers(given: ListenerSettings, controller_names: tuple[str, ...]) -> dict[str, str]:
    """The protocol map. If it is not set and only PLAINTEXT is in use, controller listeners are PLAINTEXT too."""
    protocols = parse_protocol_map(given.protocol_map)
    names = {entry.strip().partition("://")[0].upper() for entry in given.listeners}
    if not given.protocol_map_is_given and names <= {PLAINTEXT, *controller_names}:
        for name in controller_names:
            protocols.setdefault(name, PLAINTEXT)
    return protocols


def _require_roles_to_fit(
    roles: tuple[str, ...],
    listeners: tuple[Listener, ...],
    controllers: tuple[Listener, ...],
    controller_names: tuple[str, ...],
) -> None:
    key = "controller.listener.names"
    if "controller" not in roles:
        if controllers:
            raise ConfigError(
                key,
                f"{key} must not contain a value appearing in the 'listeners' configuration when running KRaft with "
                f"just the broker role: {controllers[0].name} does",
            )
        return
    if "broker" not in roles and len(controllers) < len(listeners):
        other = next(listener for listener in listeners if listener not in controllers)
        raise ConfigError(
            "listeners",
            f"The listeners config must only contain KRaft controller listeners from {key} when "
            f"process.roles=controller: {other} is none",
        )
    appearing = "appearing in the 'listeners' configuration when running the KRaft controller role"
    if not controllers:
        raise ConfigError(key, f"{key} must contain at least one value {appearing}")
    if len(controllers) < len(controller_names):
        raise ConfigError(key, f"{key} must only contain values {appearing}")


def _require_protocols(controller_names: tuple[str, ...], protocols: Mapping[str, str]) -> None:
    """Controllers are reached by their listener's protocol, also where this node does not have that listener."""
    key, map_key = "controller.listener.names", "listener.security.protocol.map"
    for name in controller_names:
        if name not in protocols:
            raise ConfigError(
                key,
                f"Controller listener with name {name} defined in {key} not found in {map_key}  (an explicit security "
                f"mapping for each controller listener is required if {map_key} is non-empty, or if there are security "
                "protocols other than PLAINTEXT in use)",
            )


def _require_advertised(advertised: tuple[Listener, ...], listeners: tuple[Listener, ...], inter_broker: str) -> None:
    """A broker must advertise listeners that it has, among them the one for other brokers."""
    if not advertised:
        raise ConfigError(
            "listeners",
            "There must be at least one broker advertised listener. "
            "Perhaps all listeners appear in controller.listener.names?",
        )
    _require_inter_broker_listener(inter_broker, advertised)
    names, own_names = [each.name for each in advertised], [each.name for each in listeners]
    if not {*names} <= {*own_names}:
        raise ConfigError(
            "advertised.listeners",
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
            f"Found {','.join(names)}. The valid options based on the current configuration are {','.join(own_names)}",
        )


def _inter_broker_name(given: ListenerSettings, protocols: Mapping[str, str]) -> str:
    key = "inter.broker.listener.name"
    if given.inter_broker_name is None:
        return given.inter_broker_protocol
    if given.inter_broker_protocol_is_given:
        raise ConfigError(key, f"Only one of {key} and security.inter.broker.protocol should be set.")
    name = given.inter_broker_name.upper()
    if name not in protocols:
        raise ConfigError(
            key, f"Listener with name {name} defined in {key} not found in listener.security.protocol.map."
        )
    return name


def _require_inter_broker_listener(name: str, advertised: tuple[Listener, ...]) -> None:
    key = "inter.broker.listener.name"
    names = [listener.name for listener in advertised]
    if name not in names:
        # If the listeners use an unsupported protocol, advice about their names would be misleading.
        require_plaintext(advertised)
        raise ConfigError(
            key,
            f"{key} must be a listener name defined in advertised.listeners. The valid options based on currently "
            f"configured listeners are {','.join(names)}; {name} is not among them",
        )


def _require_early_listeners(early: tuple[str, ...], names: set[str]) -> None:
    for name in early:
        if name.upper() not in names:
            raise ConfigError(
                "early.start.listeners",
                f"early.start.listeners contains listener {name}, "
                "but this is not contained in listeners or controller.listener.names",
            )


def _advertise_controllers(controllers: tuple[Listener, ...], advertised: tuple[Listener, ...]) -> tuple[Listener, ...]:
    """A controller listener is advertised with its advertised address, else its own, else this machine's name."""
    by_name = {listener.name: listener for listener in advertised}
    for listener in controllers:
        if listener.name in by_name and by_name[listener.name].host in WILDCARD_HOSTS:
            raise _nonroutable(by_name[listener.name], canonical_host_name())
    addresses = (by_name.get(listener.name, listener) for listener in controllers)
    return tuple(
        address._replace(host=canonical_host_name()) if address.host in ("", *WILDCARD_HOSTS) else address
        for address in addresses
    )
