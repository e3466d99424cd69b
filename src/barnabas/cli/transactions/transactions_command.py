"""`barnabas transactions list | describe | hanging | abort`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.actions import Action, run_action
from barnabas.cli.transactions import aborting, listing

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    return run_action("transactions", ACTIONS, arguments)


ACTIONS = {
    "list": Action("list transactional ids with what they have open", listing.add_list_arguments, listing.list_all),
    "describe": Action(
        "show transactional ids with the partitions that they have written to",
        listing.add_describe_arguments,
        listing.describe,
    ),
    "hanging": Action(
        "find transactions that keep readers waiting and that nobody will end",
        aborting.add_hanging_arguments,
        aborting.show_hanging,
        aborting.HANGING_EPILOG,
    ),
    "abort": Action(
        "abort an open transaction, or one that hangs in a partition",
        aborting.add_abort_arguments,
        aborting.abort,
        aborting.ABORT_EPILOG,
    ),
}
