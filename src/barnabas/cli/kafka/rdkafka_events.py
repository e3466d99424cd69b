"""What librdkafka reports by itself, in the words of Java's client: brokers out of reach, and why logins fail."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.java.java_log import NETWORK_CLIENT, log_error, log_warning

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import KafkaError

_NO_CONNECTION: Final = re.compile(
    r"(?P<name>\S+)/(?P<node>\S+?): Connect to ipv[46]#(?P<address>\S+) failed: (?P<reason>.*?)(?: \(after .*)?$"
)
_NO_LOGIN: Final = re.compile(r"(?P<name>\S+)/(?P<node>\S+?): (?P<reason>.*?)(?: \(after .*)?$")
_BOOTSTRAP: Final = "bootstrap"
_REPEAT_S: Final = 5.0
"""How long nothing is said of a broker of which the same has been said."""


def reporter(client: str) -> Callable[[KafkaError], None]:
    """An `error_cb` for a client as Java's log names it: `Producer clientId=console-producer`.

    Java's client says it again with every try; here it is said every few seconds.
    """
    said: dict[str, float] = {}

    def is_new(what: str) -> bool:
        now = time.monotonic()
        if now - said.get(what, -_REPEAT_S) < _REPEAT_S:
            return False
        said[what] = now
        return True

    def report(error: KafkaError) -> None:
        from confluent_kafka import KafkaError as Codes

        text = error.str()
        if error.code() in (Codes._AUTHENTICATION, Codes._SSL):  # noqa: SLF001 - their public names
            found = _NO_LOGIN.match(text)
            reason = found["reason"] if found else text
            node = _node(found["node"]) if found else "-1"
            if is_new(reason):
                log_error(
                    f"[{client}] Connection to node {node} failed authentication due to: {reason}", NETWORK_CLIENT
                )
            return
        found = _NO_CONNECTION.match(text)
        if found is None or not is_new(found["name"]):
            return
        host = found["name"].rpartition(":")[0]
        place = f"{'' if found['address'].startswith(host) else host}/{found['address']}"
        node = _node(found["node"])
        log_warning(
            f"[{client}] Connection to node {node} ({place}) could not be established. Node may not be available.",
            NETWORK_CLIENT,
        )
        if found["node"] == _BOOTSTRAP:
            log_warning(
                f"[{client}] Bootstrap broker {found['name']} (id: -1 rack: null isFenced: false) disconnected",
                NETWORK_CLIENT,
            )

    return report


def _node(node: str) -> str:
    return "-1" if node == _BOOTSTRAP else node
