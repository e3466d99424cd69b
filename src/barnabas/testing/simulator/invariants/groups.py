"""One owner per partition and group generation or member epoch, and committed offsets are never lost.

All that is known of a group is what its members were told. What was answered before another request was sent came
before it; where two things went on at once, either order is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.testing.simulator.load.history import NO_EPOCH, Fate
from barnabas.testing.simulator.protocols import Violation

if TYPE_CHECKING:
    from barnabas.testing.simulator.cluster import SimulatedCluster
    from barnabas.testing.simulator.load.history import Assignment, History, OffsetCommit, OffsetsSeen, TopicPartition


class _CommitsOfOwners:
    """Follows commits until their fate is known, and hands on those that were accepted."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._seen = 0
        self._open: list[OffsetCommit] = []

    def accepted(self) -> list[OffsetCommit]:
        commits = self._history.commits
        self._open += commits[self._seen :]
        self._seen = len(commits)
        done = [each for each in self._open if each.fate is Fate.DONE]
        if done:
            self._open = [each for each in self._open if each.fate is Fate.UNKNOWN]
        return done


class OneOwnerPerGeneration:
    """Classic groups: the members of a generation own different partitions, and once a generation is assigned, nobody
    of an earlier one commits."""

    name = "one owner per partition and group generation"

    def __init__(self, history: History) -> None:
        self._history = history
        self._seen = 0
        self._owners: dict[tuple[str, int, TopicPartition], Assignment] = {}
        self._newest: dict[str, Assignment] = {}
        """By group: the first assignment of its newest generation."""
        self._commits = _CommitsOfOwners(history)

    def observe(self, cluster: SimulatedCluster) -> None:  # noqa: ARG002 (others look at the nodes)
        generations = self._history.generations
        for assignment in generations[self._seen :]:
            self._take(assignment)
        self._seen = len(generations)
        for commit in self._commits.accepted():
            newest = self._newest.get(commit.group)
            if newest is not None and newest.generation > commit.generation and newest.at_s < commit.sent_s:
                raise Violation(
                    self.name,
                    f"group {commit.group}: commit {commit} for {commit.partition} was sent at {commit.sent_s:.3f} s"
                    f" and accepted, though {newest.member} was given its partitions in generation {newest.generation}"
                    f" at {newest.at_s:.3f} s",
                )

    def finish(self, cluster: SimulatedCluster) -> None:
        self.observe(cluster)

    def _take(self, assignment: Assignment) -> None:
        group, generation = assignment.group, assignment.generation
        newest = self._newest.get(group)
        if newest is None or newest.generation < generation:
            self._newest[group] = assignment
        for partition in assignment.partitions:
            other = self._owners.setdefault((group, generation, partition), assignment)
            if other.member != assignment.member:
                raise Violation(
                    self.name,
                    f"group {group}, generation {generation}: {partition} was given to {other.member} at"
                    f" {other.at_s:.3f} s and to {assignment.member} at {assignment.at_s:.3f} s",
                )


class _Grant(NamedTuple):
    member: str
    epoch: int
    coordinator_epoch: int
    at_s: float


class OneOwnerPerEpoch:
    """Consumer groups: once a partition was given to a member, no other member that claims it is confirmed, and no
    other member's commit for it is accepted."""

    name = "one owner per partition and member epoch"

    def __init__(self, history: History) -> None:
        self._history = history
        self._grants = 0
        self._claims = 0
        self._owners: dict[tuple[str, TopicPartition], _Grant] = {}
        self._commits = _CommitsOfOwners(history)

    def observe(self, cluster: SimulatedCluster) -> None:  # noqa: ARG002 (others look at the nodes)
        grants = self._history.grants
        for grant in grants[self._grants :]:
            for partition in grant.partitions:
                known = self._owners.get((grant.group, partition))
                if known is None or known.epoch <= grant.generation:
                    self._owners[grant.group, partition] = _Grant(
                        grant.member, grant.generation, grant.coordinator_epoch, grant.at_s
                    )
        self._grants = len(grants)
        claims = self._history.claims
        for claim in claims[self._claims :]:
            for partition in claim.partitions:
                self._check_claim(claim, partition)
        self._claims = len(claims)
        for commit in self._commits.accepted():
            owner = self._owners.get((commit.group, commit.partition))
            if owner is not None and owner.member != commit.member and owner.at_s < commit.sent_s:
                raise Violation(
                    self.name,
                    f"group {commit.group}: commit {commit} for {commit.partition} was sent at {commit.sent_s:.3f} s"
                    f" and accepted, though {owner.member} was given it in epoch {owner.epoch} at {owner.at_s:.3f} s",
                )

    def finish(self, cluster: SimulatedCluster) -> None:
        self.observe(cluster)

    def _check_claim(self, claim: Assignment, partition: TopicPartition) -> None:
        owner = self._owners.get((claim.group, partition))
        if owner is None or owner.member == claim.member or owner.at_s >= claim.sent_s:
            return
        if claim.coordinator_epoch == NO_EPOCH or claim.coordinator_epoch < owner.coordinator_epoch:
            return  # a coordinator that was replaced, and does not know
        raise Violation(
            self.name,
            f"group {claim.group}: {claim.member} claimed {partition} at {claim.sent_s:.3f} s and was confirmed in"
            f" epoch {claim.generation} by node {claim.node}, though {owner.member} was given it in epoch {owner.epoch}"
            f" at {owner.at_s:.3f} s",
        )


class CommittedOffsetsAreKept:
    """Whoever asks for a committed offset gets the last one, or one whose commit was under way at the time."""

    name = "committed offsets are never lost"

    def __init__(self, history: History) -> None:
        self._history = history
        self._seen = 0
        self._taken = 0
        self._commits: dict[tuple[str, TopicPartition], list[OffsetCommit]] = {}
        self._by_mark: dict[str, OffsetCommit] = {}

    def observe(self, cluster: SimulatedCluster) -> None:  # noqa: ARG002 (others look at the nodes)
        commits = self._history.commits
        for commit in commits[self._taken :]:
            self._commits.setdefault((commit.group, commit.partition), []).append(commit)
            self._by_mark[commit.mark] = commit
        self._taken = len(commits)
        seen = self._history.offsets_seen
        for each in seen[self._seen :]:
            self._check(each)
        self._seen = len(seen)

    def finish(self, cluster: SimulatedCluster) -> None:
        self.observe(cluster)

    def _check(self, seen: OffsetsSeen) -> None:
        commits = self._commits.get((seen.group, seen.partition), ())
        found = self._by_mark.get(seen.mark)
        if seen.mark and commits and found is None:
            raise Violation(self.name, f"{self._where(seen)} has {seen.mark!r}, which nobody has committed")
        for commit in commits:
            if commit.fate is not Fate.DONE or commit.told_s >= seen.sent_s:
                continue
            if seen.coordinator_epoch == NO_EPOCH or seen.coordinator_epoch < commit.coordinator_epoch:
                continue  # a coordinator that was replaced, and does not know
            if found is None or (found is not commit and found.told_s < commit.sent_s):
                raise Violation(
                    self.name,
                    f"{self._where(seen)} has {found or 'nothing'}, though {commit} was acknowledged at"
                    f" {commit.told_s:.3f} s, which was sent at {commit.sent_s:.3f} s",
                )

    def _where(self, seen: OffsetsSeen) -> str:
        return f"group {seen.group}, {seen.partition}: node {seen.node}, asked at {seen.sent_s:.3f} s,"
