"""Flags that Kafka's tools had once, as tutorials still show them, put as they are today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.cluster_access import LOCAL_NODE
from barnabas.cli.kafka.tool import warn

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

BOOTSTRAP: Final = "bootstrap-server"
ZOOKEEPER: Final = "zookeeper"
BROKER_LIST: Final = {"broker-list": BOOTSTRAP}
"""For tools of which the flag does not mean the numbers of brokers."""


def todays_words(
    words: Sequence[str], renamed: Mapping[str, str] | None = None, without_effect: Collection[str] = ()
) -> list[str]:
    """A command line in which `--zookeeper …` has become `--bootstrap-server` with the node of this machine.

    Where it says a bootstrap server as well, only that counts. `renamed` says what other flags are called today, and
    `without_effect` which ones asked for what has become a matter of course.
    """
    names = {_name(word) for word in words}
    has_bootstrap = bool(names & {BOOTSTRAP, "bootstrap-controller"})
    found: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        name, _, value = word.lstrip("-").partition("=")
        if not word.startswith("-"):
            found.append(word)
        elif name == ZOOKEEPER:
            if "=" not in word and rest:
                rest.pop()
            if not has_bootstrap:
                warn(f"--zookeeper: there is no ZooKeeper any more; this is `--bootstrap-server {LOCAL_NODE}`")
                found += [f"--{BOOTSTRAP}", LOCAL_NODE]
                has_bootstrap = True
        elif name in without_effect:
            continue
        elif renamed and name in renamed:
            found += [f"--{renamed[name]}", *([value] if "=" in word else [])]
        else:
            found.append(word)
    return found


def _name(word: str) -> str:
    return word.lstrip("-").partition("=")[0] if word.startswith("-") else ""
