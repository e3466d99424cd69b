"""Which levels of features a release has, and which need which: what `kafka-storage` and `kafka-features` both tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.metadata.versions import (
    ELR_FEATURE,
    ELR_METADATA_VERSION_MIN,
    FEATURE_NAME,
    KRAFT_FEATURE,
    LATEST,
    SUPPORTED_FEATURES,
)
from barnabas.node.initial_features import UNSTABLE_NAMES, VERSION_NAMES, FeatureError, default_level, level_of_release

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL_NAMES: Final = {**VERSION_NAMES, **UNSTABLE_NAMES}
"""What the levels of metadata.version are called, those included with which no cluster begins."""
IN_ORDER: Final = (
    KRAFT_FEATURE,
    "transaction.version",
    "group.version",
    ELR_FEATURE,
    "share.version",
    "streams.version",
)
_VOTERS_IN_THE_LOG_SINCE: Final = 21
"""3.9-IV0: the metadata.version from which on new clusters begin with kraft.version 1."""
_NEEDS: Final = {(ELR_FEATURE, 1): {FEATURE_NAME: ELR_METADATA_VERSION_MIN}}
LATEST_NAME: Final = VERSION_NAMES[LATEST]


def level_at(feature: str, metadata_version: int) -> int:
    """The level of a feature in clusters that begin with a metadata.version."""
    if feature == KRAFT_FEATURE:
        return int(metadata_version >= _VOTERS_IN_THE_LOG_SINCE)
    return default_level(feature, metadata_version)


def level_to_run_with(release: str) -> int:
    """The metadata.version of a release that clusters may run with. FeatureError for any other."""
    level = level_of_release(release, ALL_NAMES)
    if level not in VERSION_NAMES:
        known = ", ".join(ALL_NAMES.values())
        raise FeatureError(f"Unknown metadata.version '{release}'. Supported metadata.version are: {known}")
    return level


def mapping_lines(release: str) -> Iterator[str]:
    """The features of a release. FeatureError for one that is unknown."""
    level = level_of_release(release, ALL_NAMES)
    yield f"{FEATURE_NAME}={level} ({release})"
    for feature in IN_ORDER:
        yield f"{feature}={level_at(feature, level)}"


def is_level(feature: str, level: int) -> bool:
    return SUPPORTED_FEATURES[feature].lowest <= level <= SUPPORTED_FEATURES[feature].highest


def dependency_lines(feature: str, level: int) -> Iterator[str]:
    """What a level of a feature, both known, needs of others."""
    if feature == FEATURE_NAME:
        yield f"{feature}={level} ({ALL_NAMES[level]}) has no dependencies."
        return
    needs = _NEEDS.get((feature, level))
    if not needs:
        yield f"{feature}={level} has no dependencies."
        return
    yield f"{feature}={level} requires:"
    for name, least in needs.items():
        yield f"    {name}={least}" + (f" ({ALL_NAMES[least]})" if name == FEATURE_NAME else "")
