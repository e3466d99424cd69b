"""Settings of older Kafka versions, so that a properties file of the ZooKeeper era starts.

Some have a successor and are translated, some are ignored with a line that says so, some were removed and
are named with what replaces them. Nothing of this is refused: the file worked once.
"""

from collections.abc import Mapping, Sequence

_FORMAT = "nothing: records are always stored and served in format v2"
_QUOTAS = "client quotas, set with kafka-configs --entity-type clients --entity-default"
_SECRETS = "nothing: secrets are no longer encrypted by the broker; config.providers keeps them elsewhere"
_BY_HAND = "node.id, given by hand"

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
    "leader.imbalance.per.broker.percentage": "nothing: every imbalance is set right",
    "log.message.downconversion.enable": _FORMAT,
    "log.message.format.version": _FORMAT,
    "log.message.timestamp.difference.max.ms": (
        "log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "message.downconversion.enable": _FORMAT,
    "message.format.version": _FORMAT,
    "message.timestamp.difference.max.ms": "message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    "metadata.log.segment.min.bytes": "metadata.log.segment.bytes",
    "offsets.commit.required.acks": "nothing: offset commits wait for all in-sync replicas",
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
"""Settings that Kafka 4 no longer has, and what took their place."""

_OLD_LISTENER_NAMES = ("port", "host.name", "advertised.port", "advertised.host.name")


def translate(properties: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """`properties` in today's names, and a line for everything that was translated, ignored or removed."""
    kept = dict(properties)
    notes = [*_drop_zookeeper(kept), *_translate_listeners(kept)]
    for name in [name for name in kept if name in REPLACED]:
        del kept[name]
        notes.append(f"{name} was removed from Kafka and is ignored; in its place: {REPLACED[name]}")
    return kept, notes


def _drop_zookeeper(kept: dict[str, str]) -> list[str]:
    names = [name for name in kept if name.startswith("zookeeper.")]
    for name in names:
        del kept[name]
    if not names:
        return []
    return [f"no ZooKeeper is needed: {', '.join(sorted(names))} {'is' if len(names) == 1 else 'are'} ignored"]


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
        return f"{old} ignored, because {successor} is given"
    kept[successor] = address
    return f"{old} replaced by {successor}={address}"
