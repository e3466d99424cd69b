"""Groups as an administrator sees them: listed, described, deleted. Functions over a shard's groups, changing none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.groups.classic_state import GroupState
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.groups.classic import ClassicGroup

CLASSIC: Final = "classic"
"""The type of all groups so far, as ListGroups names it."""

MISSING_GROUP_IS_AN_ERROR_FROM: Final = 6
"""The first version of DescribeGroups that says of a group that there is none; before, such a group is "Dead"."""


def list_groups(
    groups: Iterable[ClassicGroup], states_filter: Iterable[str], types_filter: Iterable[str]
) -> list[m.ListGroupsResponse.ListedGroup]:
    """The groups in one of the states and of one of the types. No filter lets all pass, an unknown name none."""
    states = {name.lower().strip() for name in states_filter}
    types = {name.lower() for name in types_filter}
    if types and CLASSIC not in types:
        return []
    return [_listed(group) for group in groups if not states or group.state.value.lower() in states]


def describe_groups(
    groups: Mapping[str, ClassicGroup], group_ids: Iterable[str], version: int
) -> list[m.DescribeGroupsResponse.DescribedGroup]:
    return [_described(groups, group_id, version) for group_id in group_ids]


def check_group_deletion(group: ClassicGroup | None) -> Error:
    """Whether DeleteGroups may delete a group: nobody may be in it."""
    if group is None or group.state is GroupState.DEAD:
        return Error.GROUP_ID_NOT_FOUND
    return Error.NONE if group.can_be_deleted else Error.NON_EMPTY_GROUP


def check_offset_deletion(group: ClassicGroup | None) -> Error:
    """Whether OffsetDelete may look at a group's offsets at all.

    Of a group with members only the consumers' own protocol tells which topics are in use.
    """
    error = check_group_deletion(group)
    if error is Error.NON_EMPTY_GROUP and group is not None and group.uses_consumer_protocol:
        return Error.NONE
    return error


def _listed(group: ClassicGroup) -> m.ListGroupsResponse.ListedGroup:
    return m.ListGroupsResponse.ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC,
    )


def _described(
    groups: Mapping[str, ClassicGroup], group_id: str, version: int
) -> m.DescribeGroupsResponse.DescribedGroup:
    if (group := groups.get(group_id)) is not None:
        return group.describe()
    described = m.DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= MISSING_GROUP_IS_AN_ERROR_FROM:
        described.error_code = Error.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} not found."
    return described
