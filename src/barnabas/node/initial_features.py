"""The feature levels that a new cluster begins with: by `--release-version` and `--feature`, as for `kafka-storage`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.metadata.versions import (
    BOOTSTRAP_FEATURES,
    ELR_FEATURE,
    ELR_METADATA_VERSION_MIN,
    FEATURE_NAME,
    KRAFT_FEATURE,
    LATEST,
    MINIMUM,
    SUPPORTED_FEATURES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_RELEASES: Final = (
    ("3.3", (3,)),
    ("3.4", (0,)),
    ("3.5", (0, 1, 2)),
    ("3.6", (0, 1, 2)),
    ("3.7", (0, 1, 2, 3, 4)),
    ("3.8", (0,)),
    ("3.9", (0,)),
    ("4.0", (0, 1, 2, 3)),
    ("4.1", (0, 1)),
    ("4.2", (0, 1)),
    ("4.3", (0,)),
)
"""The changes of metadata.version in each release of Kafka, by number."""

VERSION_NAMES: Final[Mapping[int, str]] = dict(
    enumerate((f"{release}-IV{number}" for release, numbers in _RELEASES for number in numbers), start=MINIMUM)
)
"""What each level of metadata.version is called."""

UNSTABLE_NAMES: Final[Mapping[int, str]] = {LATEST + 1: "4.4-IV0"}
"""Levels that Kafka's software knows, but begins no cluster with."""

_INTRODUCED: Final[Mapping[str, Mapping[int, int]]] = {
    "transaction.version": {24: 2},
    "group.version": {22: 1},
    ELR_FEATURE: {26: 1},
    "share.version": {28: 1},
    "streams.version": {29: 1},
}
"""From which metadata.version on a new cluster begins with which level of a feature."""


class FeatureError(ValueError):
    """Feature levels with which no cluster can begin."""


class InitialFeatures(NamedTuple):
    """`levels` are those of the records of bootstrap.checkpoint, in their order: without those at level 0, and without
    kraft.version, which has a record of its own."""

    metadata_version: int
    levels: Mapping[str, int]

    @property
    def version_name(self) -> str:
        return VERSION_NAMES[self.metadata_version]


DEFAULT_FEATURES: Final = InitialFeatures(LATEST, BOOTSTRAP_FEATURES)


def initial_features(release: str | None, given: Iterable[str], *, has_static_voters: bool) -> InitialFeatures:
    """The features of a new cluster. `given` are the texts of `--feature`. Raises FeatureError in Kafka's words."""
    levels = dict(parse_feature(text) for text in given)
    _check_names(levels)
    if FEATURE_NAME in levels and release is not None:
        raise FeatureError(f"Use --release-version instead of --feature {FEATURE_NAME}=X to avoid ambiguity.")
    metadata_version = levels.pop(FEATURE_NAME, LATEST) if release is None else release_level(release)
    if metadata_version not in VERSION_NAMES:
        raise FeatureError(
            f"No MetadataVersion with feature level {metadata_version}. "
            f"Valid feature levels are from {MINIMUM} to {max(UNSTABLE_NAMES)}."
        )
    _check_kraft_version(levels.pop(KRAFT_FEATURE, None), has_static_voters=has_static_voters)
    complete = {name: levels.get(name, default_level(name, metadata_version)) for name in sorted(_INTRODUCED)}
    _check_levels(complete, metadata_version)
    effective = {name: level for name, level in complete.items() if level > 0}
    return InitialFeatures(metadata_version, {FEATURE_NAME: metadata_version, **effective})


def parse_feature(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    problem = f"Can't parse feature=level string {text}:"
    if not equals:
        raise FeatureError(f"{problem} equals sign not found.")
    if not (level.isascii() and level.removeprefix("-").isdigit() and -(1 << 15) <= int(level) < 1 << 15):
        raise FeatureError(f"{problem} unable to parse {level} as a short.")
    return name.strip(), int(level)


def release_level(release: str) -> int:
    """The metadata.version of a release: 4.0, 4.0.1 and 4.0-IV3 are all the last one of 4.0."""
    return level_of_release(release, VERSION_NAMES)


def level_of_release(release: str, names: Mapping[int, str]) -> int:
    """The same among some levels by their names."""
    wanted = ".".join(release.strip().split(".")[:2])
    for level in sorted(names, reverse=True):
        if wanted in (names[level], names[level].partition("-")[0]):
            return level
    known = ", ".join(names.values())
    raise FeatureError(f"Unknown metadata.version '{release}'. Supported metadata.version are: {known}")


def default_level(feature: str, metadata_version: int) -> int:
    """The level at which a feature is in a cluster that begins with a metadata.version."""
    return max((level for since, level in _INTRODUCED[feature].items() if since <= metadata_version), default=0)


def _check_names(levels: Mapping[str, int]) -> None:
    known = sorted({*_INTRODUCED, KRAFT_FEATURE})
    for name in levels:
        if name not in known and name != FEATURE_NAME:
            raise FeatureError(f"Unsupported feature: {name}. Supported features are: {', '.join(known)}")


def _check_levels(levels: Mapping[str, int], metadata_version: int) -> None:
    for name, level in levels.items():
        if not SUPPORTED_FEATURES[name].lowest <= level <= SUPPORTED_FEATURES[name].highest:
            raise FeatureError(f"No feature:{name} with feature level {level}")
    if levels[ELR_FEATURE] > 0 and metadata_version < ELR_METADATA_VERSION_MIN:
        raise FeatureError(
            f"{ELR_FEATURE} could not be set to {levels[ELR_FEATURE]} because it depends on {FEATURE_NAME} level "
            f"{ELR_METADATA_VERSION_MIN}"
        )


def _check_kraft_version(level: int | None, *, has_static_voters: bool) -> None:
    """Whether voters are in the log (1) or in the settings (0) is not a matter of choice: it follows from them."""
    if level is None:
        return
    if level not in (0, 1):
        raise FeatureError(f"No feature:{KRAFT_FEATURE} with feature level {level}")
    flags = "--standalone, --initial-controllers, or --no-initial-controllers"
    condition = (
        f"controller.quorum.voters is empty and one of the flags {flags} is used. For dynamic controllers support,"
    )
    if level == 0 and not has_static_voters:
        raise FeatureError(
            f"Cannot set kraft.version to 0 if {condition} try removing the --feature flag for kraft.version."
        )
    if level == 1 and has_static_voters:
        raise FeatureError(
            f"Cannot set kraft.version to 1 unless {condition} try using one of {flags} and removing "
            "controller.quorum.voters."
        )
