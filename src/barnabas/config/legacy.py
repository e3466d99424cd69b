"""Settings of older Kafka versions, so that a node starts with a properties file from the ZooKeeper era.

Some have a successor and are translated; the others are ignored, with a warning that names the replacement if there is
one. None of them is an error: the file worked once.
"""

from collections.abc import Mapping, Sequence

_FORMAT = "none needed, records are always stored and served in message format v2"
_QUOTAS = "client quotas, set with kafka-configs --entity-type clients --entity-default"
_SECRETS = "config.providers, which keeps secrets outside the broker's configuration"
_BY_HAND = "node.id, set explicitly"

REPLACED: Mapping[str, str] = {
    "auto.include.jmx.reporter": "metric.reporters",
    "broker.id.generation.enable": _BY_HAND,
    "control.plane.listener.name": "controller.listener.names",
    "controlled.shutdown.max.retries": "controlled.shutdown.enable",
    "controlled.shutdown.retry.backoff.ms": "controlled.shutdown.enable",
    "delegation.token.master.key": "delegation.token.secret.key",
    "eligible.leader.replicas.enable": "the cluster's eligible.leader.replicas.version feature",
    "group.coordinator.new.enable": "group.coordinator.rebalance.protocols",
    "group.share.enable": "the cluster's share.version feature",
    "inter.broker.protocol.version": "the cluster's metadata.version feature",
    "leader.imbalance.per.broker.percentage": "none needed, any leader imbalance is corrected",
    "log.message.downconversion.enable": _FORMAT,
    "log.message.format.version": _FORMAT,
    "log.message.timestamp.difference.max.ms": (
        "log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "message.downconversion.enable": _FORMAT,
    "message.format.version": _FORMAT,
    "message.timestamp.difference.max.ms": "message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    "metadata.log.segment.min.bytes": "metadata.log.segment.bytes",
    "offsets.commit.required.acks": "none needed, offset commits wait for all in-sync replicas",
    "password.encoder.cipher.algorithm": _SECRETS,
    "password.encoder.iterations": _SECRETS,
    "password.encoder.key.length": _SECRETS,
    "password.encoder.keyfactory.algorithm": _SECRETS,
    "password.encoder.old.secret": _SECRETS,
    "password.encoder.secret": _SECRETS,
    "quota.consumer.default": _QUOTAS,
    "quota.producer.default": _QUOTAS,
    "reserved.broker.max.id": _BY_HAND,
}
"""Settings that Kafka 4 no longer has, and what replaces them."""

_OLD_LISTENER_NAMES = ("port", "host.name", "advertised.port", "advertised.host.name")


def translate(properties: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """`properties` under current names, and a warning for each setting that was translated or ignored."""
    kept = dict(properties)
    notes = [*_drop_zookeeper(kept), *_translate_listeners(kept)]
    for name in [name for name in kept if name in REPLACED]:
        del kept[name]
        notes.append(f"{name} was removed from Kafka and is ignored; replacement: {REPLACED[name]}")
    return kept, notes


def _drop_zookeeper(kept: dict[str, str]) -> list[str]:
    names = [name for name in kept if name.startswith("zookeeper.")]
    for name in names:
        del kept[name]
    if not names:
        return []
    return [f"ZooKeeper is not used: ignoring {', '.join(sorted(names))}"]


def _translate_listeners(kept: dict[str, str]) -> list[str]:
    old = {name: kept.pop(name).strip() for name in _OLD_LISTENER_NAMES if name in kept}
    notes = []
    if "port" in old or "host.name" in old:
        address = f"PLAINTEXT://{old.get('host.name', '')}:{old.get('port', '9092')}"
        notes.append(_translate_to(kept, "listeners", address, [name for name in ("host.name", "port") if name in old]))
    if "advertised.port" in old or "advertised.host.name" in old:
        host = old.get("advertised.host.name", old.get("host.name", ""))
        address = f"PLAINTEXT://{host}:{old.get('advertised.port', old.get('port', '9092'))}"
        names = [name for name in ("advertised.host.name", "advertised.port") if name in old]
        notes.append(_translate_to(kept, "advertised.listeners", address, names))
    return notes


def _translate_to(kept: dict[str, str], successor: str, address: str, names: Sequence[str]) -> str:
    old = " and ".join(names)
    if successor in kept:
        return f"ignoring {old}, because {successor} is set"
    kept[successor] = address
    return f"using {successor}={address} instead of {old}"
