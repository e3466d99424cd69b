"""How many connections may come in a second: to the broker, to each listener, and from each address.

Where the broker or a listener gets more than `max.connection.creation.rate`, it takes the next one later, and others
wait until then. A connection from an address that sends more than its quota (`connection_creation_rate`) is taken, and
closed after a while, so that others are not held up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.net.windowed_rate import DEFAULT_QUOTA_WINDOWS, WindowedRate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.net.windowed_rate import QuotaWindows

ADDRESSES_MAX = 10_000
"""Beyond so many, those that have sent nothing for a while are forgotten."""


class ConnectionRates:
    """Those of all listeners that share a limit."""

    __slots__ = ("_by_address", "by_address_max", "default_max", "total", "windows")

    def __init__(self, windows: QuotaWindows = DEFAULT_QUOTA_WINDOWS) -> None:
        self.windows = windows
        self.total = WindowedRate(windows)
        self.by_address_max: Mapping[str, int] = {}
        """The quotas of addresses."""
        self.default_max: int | None = None
        """That of every other address."""
        self._by_address: dict[str, WindowedRate] = {}

    def of_address(self, address: str, now_s: float) -> WindowedRate | None:
        """None if the address has no quota."""
        limit = self.by_address_max.get(address, self.default_max)
        if limit is None:
            return None
        rate = self._by_address.get(address)
        if rate is None:
            if len(self._by_address) >= ADDRESSES_MAX:
                self._by_address = {each: rate for each, rate in self._by_address.items() if not rate.is_idle(now_s)}
            rate = self._by_address[address] = WindowedRate(self.windows)
        rate.limit = limit
        return rate
