"""Members of groups and transactions, as tests of one node have them."""

from __future__ import annotations

from tests.clients.conftest import begin, members

__all__ = ["begin", "members"]
