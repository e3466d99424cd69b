"""A group of either kind, for what treats them alike."""

from __future__ import annotations

from typing import TypeAlias

from barnabas.groups.classic import ClassicGroup
from barnabas.groups.consumer_group import ConsumerGroup

Group: TypeAlias = ClassicGroup | ConsumerGroup
