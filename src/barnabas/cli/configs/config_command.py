"""`barnabas config describe | set | unset`, of topics, brokers, groups and subscriptions to the metrics of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.actions import Action, run_action
from barnabas.cli.configs import changing, describing

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    return run_action("config", ACTIONS, arguments)


ACTIONS = {
    "describe": Action(
        "show settings, where their values come from, and what they are for",
        describing.add_arguments,
        describing.describe,
        describing.EPILOG,
    ),
    "set": Action("set settings while the cluster runs", changing.add_set_arguments, changing.set_, changing.EPILOG),
    "unset": Action("take settings back to what would hold without them", changing.add_unset_arguments, changing.unset),
}
