"""What a follower does with its log when the leader's is another: the decisions, from offsets and epochs. Pure.

A follower asks for what comes after its log end, and says which leader epoch its last record is of. From that the
leader sees whether both logs have the same records up to there. If not, it answers with the *diverging epoch*: the
largest epoch that it knows and that is not newer than the follower's, and where that epoch ends in its log. What the
follower has beyond was written by a leader that did not keep it. Where the follower does not know that epoch itself, it
cuts back to the end of the one before, asks again, and so the two agree after a few rounds.

A follower whose end the leader does not have any more (retention has removed it) starts anew where the leader's log
starts. One that is ahead of the leader (it holds what an unclean election has given up) cuts its log to the leader's.
"""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN_OFFSET = -1

BACKOFF_MS_MIN = 10


class EpochEnd(NamedTuple):
    """An epoch, and the offset after its last record."""

    epoch: int
    end_offset: int


def truncation_offset(leaders: EpochEnd, own: EpochEnd, log_end_offset: int) -> int:
    """Where to cut a log of which the leader says that it diverges after `leaders`. `own` is the largest epoch in the
    follower's log that is not newer than that one."""
    if own.end_offset == UNKNOWN_OFFSET:
        # Nothing is known of epochs so old; what the leader has of them is all that can be right.
        return min(leaders.end_offset, log_end_offset)
    if own.epoch != leaders.epoch:
        return min(own.end_offset, log_end_offset)
    return min(own.end_offset, leaders.end_offset, log_end_offset)


class Restart(NamedTuple):
    """How to go on after an offset that the leader does not have."""

    offset: int
    is_from_nothing: bool
    """Whether everything is dropped, and not only what comes after the offset."""


def restart(leader_start: int, leader_end: int, log_end_offset: int) -> Restart | None:
    """None where the follower's log end is within the leader's log after all: it has only to ask again."""
    if leader_end < log_end_offset:
        return Restart(leader_end, is_from_nothing=False)
    if leader_start > log_end_offset:
        return Restart(leader_start, is_from_nothing=True)
    return None


def backoff_ms(failures: int, longest_ms: int) -> int:
    """How long to wait after so many failures in a row. It begins with little: most often one side has merely heard of
    a new leader before the other."""
    return min(BACKOFF_MS_MIN << min(failures - 1, 20), longest_ms)
