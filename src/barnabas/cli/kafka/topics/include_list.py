"""Which topics are meant: names, patterns, or several of them between commas."""

from __future__ import annotations

import re
from typing import Final

from barnabas.cli.kafka.tool import ToolError

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
EVERY_TOPIC: Final = ".*"
_QUOTES: Final = "\"'"


class IncludeList:
    """The pattern of a `--topic` flag."""

    def __init__(self, text: str) -> None:
        # Files of properties bring quotes with them.
        pattern = text.strip().replace(",", "|").replace(" ", "").strip(_QUOTES)
        try:
            self._pattern = re.compile(pattern)
        except re.error:
            raise ToolError(f"{pattern} is an invalid regex.") from None

    def allows(self, topic: str) -> bool:
        return self._pattern.fullmatch(topic) is not None
