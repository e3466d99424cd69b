"""How many records are sent in a second."""

from __future__ import annotations

import time
from typing import Final

NO_LIMIT: Final = -1.0
_PAUSE_S_MIN: Final = 0.002
"""Less than that is not worth a pause; what is ahead of time then waits with what comes next."""

_FOR_EVER_S: Final = 365 * 86_400.0


class Pace:
    """Tells how long to wait so that no more than so many records are sent in a second."""

    def __init__(self, records_per_second: float) -> None:
        self._rate = records_per_second
        self._started = time.monotonic()

    def pause_s(self, sent: int) -> float:
        """How long to wait after so many records; for ever at a rate of zero."""
        if self._rate < 0:
            return 0.0
        if self._rate == 0:
            return _FOR_EVER_S
        ahead_s = sent / self._rate - (time.monotonic() - self._started)
        return ahead_s if ahead_s >= _PAUSE_S_MIN else 0.0
