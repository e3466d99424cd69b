"""UpdateFeatures: the finalized levels of the cluster's features are raised, or lowered where that loses nothing.

All updates of a request are done or none. A level must be supported by this controller, by every other controller and
by every broker. What kraft.version is, control records say; it cannot be raised here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions.context import Decision
from barnabas.controller.decisions.elections import MIN_ISR
from barnabas.metadata import versions
from barnabas.metadata.conversions import supported_levels
from barnabas.metadata.image import DEFAULT_BROKERS, ResourceType
from barnabas.metadata.versions import SUPPORTED_FEATURES, VersionedRecord, VersionRange
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.controller.decisions.context import Context
    from barnabas.controller.decisions.controller_state import ControllerState

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def update_features(state: ControllerState, request: m.UpdateFeaturesRequest, context: Context) -> Decision:
    updates = {update.feature: update for update in request.feature_updates}
    proposed = {name: update.max_version_level for name, update in updates.items()}
    records: list[VersionedRecord] = []
    for update in updates.values():
        try:
            records += _updated(state, update, proposed, context)
        except KafkaError as error:
            raise KafkaError(
                error.error,
                f"The update failed for all features since the following feature had an error: {error.message}",
            ) from error
    result = m.UpdateFeaturesResponse.UpdatableFeatureResult
    response = m.UpdateFeaturesResponse(
        error_message=None, results=[result(feature=name, error_message=Error.NONE.name) for name in updates]
    )
    return Decision(response, [] if request.validate_only else records)


def _updated(
    state: ControllerState,
    update: m.UpdateFeaturesRequest.FeatureUpdateKey,
    proposed: Mapping[str, int],
    context: Context,
) -> list[VersionedRecord]:
    name, level = update.feature, update.max_version_level
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    _check_supported(state, update, context)
    current = state.features.levels(context.kraft_version).get(name, 0)
    if name == versions.KRAFT_FEATURE:
        return _checked_kraft_version(update, current)
    if level < current and update.upgrade_type == UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if level > current and update.upgrade_type != UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if name == versions.FEATURE_NAME:
        _check_metadata_version(state, update, current, proposed)
    elif name not in SUPPORTED_FEATURES:
        raise _invalid(update, f"Feature {name} not found.")
    elif name == versions.ELR_FEATURE and level > 0:
        _check_elr(state, update, proposed)
    if level == current:
        return []
    records = [VersionedRecord(m.FeatureLevelRecord(name=name, feature_level=level), 0)]
    if name == versions.ELR_FEATURE and level > current:
        records += _single_min_isr(state, context)
    return records


def _checked_kraft_version(update: m.UpdateFeaturesRequest.FeatureUpdateKey, current: int) -> list[VersionedRecord]:
    if update.max_version_level < current:
        raise _invalid(update, "Can't downgrade the version of this feature.")
    if update.max_version_level > current:
        raise _invalid(update, "This controller cannot upgrade the version of this feature.")
    return []


def _check_supported(
    state: ControllerState, update: m.UpdateFeaturesRequest.FeatureUpdateKey, context: Context
) -> None:
    for node, supported in _supported(state, update.feature, context):
        if supported is None and update.max_version_level == 0:
            continue
        if supported is None:
            raise _invalid(update, f"{node} does not support this feature.")
        if not supported.lowest <= update.max_version_level <= supported.highest:
            raise _invalid(update, f"{node} only supports versions {supported.lowest}-{supported.highest}")


def _supported(state: ControllerState, feature: str, context: Context) -> Iterator[tuple[str, VersionRange | None]]:
    """The levels that each node supports; None if it does not know the feature. Not every broker says what it supports
    of kraft.version, which is none of its business."""
    yield f"Local controller {context.settings.node_id}", SUPPORTED_FEATURES.get(feature)
    for controller_id, controller in state.metadata.controllers.items():
        if controller_id != context.settings.node_id:
            yield f"Controller {controller_id}", supported_levels(controller.features).get(feature)
    if feature != versions.KRAFT_FEATURE:
        for broker in state.brokers.values():
            yield f"Broker {broker.id}", broker.features.get(feature)


def _check_metadata_version(
    state: ControllerState, update: m.UpdateFeaturesRequest.FeatureUpdateKey, current: int, proposed: Mapping[str, int]
) -> None:
    level = update.max_version_level
    if level < current and versions.changes_metadata(level, current):
        why = "Refusing to perform the requested downgrade because it might delete metadata information."
        if update.upgrade_type == UNSAFE_DOWNGRADE:
            why = "Unsafe metadata downgrade is not supported in this version."
        raise KafkaError(
            Error.INVALID_UPDATE_VERSION,
            f"Unsupported {versions.FEATURE_NAME} downgrade from {current} to {level}. {why}",
        )
    elr = proposed.get(versions.ELR_FEATURE, state.features.finalized.get(versions.ELR_FEATURE, 0))
    if elr and not versions.supports_elr(level):
        raise _elr_needs_more(update)


def _check_elr(
    state: ControllerState, update: m.UpdateFeaturesRequest.FeatureUpdateKey, proposed: Mapping[str, int]
) -> None:
    if not versions.supports_elr(proposed.get(versions.FEATURE_NAME, state.features.metadata_version)):
        raise _elr_needs_more(update)


def _elr_needs_more(update: m.UpdateFeaturesRequest.FeatureUpdateKey) -> KafkaError:
    return _invalid(
        update,
        f"{versions.ELR_FEATURE} could not be set to 1 because it depends on {versions.FEATURE_NAME} level "
        f"{versions.ELR_METADATA_VERSION_MIN}",
    )


def _single_min_isr(state: ControllerState, context: Context) -> list[VersionedRecord]:
    """Eligible leader replicas are meaningful only if all brokers have the same min.insync.replicas."""
    configs = state.metadata.configs
    changes: list[tuple[str, str | None]] = []
    if MIN_ISR not in configs.of(DEFAULT_BROKERS):
        changes.append((DEFAULT_BROKERS.name, str(context.settings.min_insync_replicas)))
    changes += [
        (resource.name, None)
        for resource, of_broker in configs.resources.items()
        if resource.type == ResourceType.BROKER and resource.name and MIN_ISR in of_broker
    ]
    return [
        VersionedRecord(
            m.ConfigRecord(resource_type=ResourceType.BROKER, resource_name=name, name=MIN_ISR, value=value), 0
        )
        for name, value in changes
    ]


def _invalid(update: m.UpdateFeaturesRequest.FeatureUpdateKey, why: str) -> KafkaError:
    return KafkaError(
        Error.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.max_version_level} for feature {update.feature}. {why}",
    )
