"""`barnabas group list | describe | members | reset | delete | delete-offsets`, for groups of both protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.actions import Action, run_action
from barnabas.cli.groups import deleting, describing, listing, resetting

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    return run_action("group", ACTIONS, arguments)


ACTIONS = {
    "list": Action("list groups, whatever they are for", listing.add_arguments, listing.list_all),
    "describe": Action(
        "show how far groups have come in each partition, and who reads it",
        describing.add_describe_arguments,
        describing.describe,
        describing.DESCRIBE_EPILOG,
    ),
    "members": Action(
        "show the members of groups and what they read", describing.add_members_arguments, describing.show_members
    ),
    "reset": Action(
        "set where a group goes on, after the plan was shown",
        resetting.add_arguments,
        resetting.reset,
        resetting.EPILOG,
    ),
    "delete": Action("delete groups with their offsets", deleting.add_delete_arguments, deleting.delete),
    "delete-offsets": Action(
        "forget how far a group has come in topics that it does not read any more",
        deleting.add_delete_offsets_arguments,
        deleting.delete_offsets,
    ),
}
