"""How long a broker that is not heard from counts as alive.

As in Kafka, a session ends `broker.session.timeout.ms` after the last heartbeat. With
`barnabas.broker.disconnect.grace.ms` it may end sooner: when a process dies, its system closes its connections, and the
controller learns that at once from the one over which the heartbeats came. A closed connection alone proves nothing, as
a living broker may lose one too; but that broker connects again and sends a heartbeat without waiting until it is due.
So a broker whose connection was closed from its side, and that is not heard over another one within the grace, has
gone. If it has not, it is fenced and unfenced again: leaders move, and nothing is lost, as with any fencing.

What is not known to be gone has its whole session:

- a broker in the process of the active controller, which has no connection;
- a broker that a new controller has not heard yet, except that of the leader before it, if that node refused
  connections before the election;
- a broker whose connection the controller closed, or whose machine or network fails without a word.

The grace begins when the controller sees the end of the connection, not when that came: a controller that was stopped
for a while first reads what was sent to it meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.controller.decisions.context import NO_GRACE

if TYPE_CHECKING:
    from barnabas.controller.decisions.context import Settings

NO_OFFSET = -1


class Session(NamedTuple):
    """What the controller remembers about a broker between heartbeats. It is lost with the leadership."""

    last_contact_ms: int
    metadata_offset: int = NO_OFFSET
    controlled_shutdown_offset: int = NO_OFFSET
    """Where the broker's controlled shutdown began, if it has."""
    connection: object = None
    """Over which the last heartbeat came, if over any: only compared."""
    disconnected_ms: int | None = None
    """When that connection was closed from the other side, unless another came after it."""

    def ends_at_ms(self, settings: Settings) -> int:
        """The last moment at which the broker counts as alive."""
        silent_ms = self.last_contact_ms + settings.session_timeout_ms
        if self.disconnected_ms is None or settings.disconnect_grace_ms == NO_GRACE:
            return silent_ms
        return min(silent_ms, self.disconnected_ms + settings.disconnect_grace_ms)

    def connected(self, connection: object) -> Session:
        """A heartbeat came over this connection, which is open."""
        return self._replace(connection=connection, disconnected_ms=None)

    def disconnected(self, connection: object, now_ms: int) -> Session:
        """This connection was closed from the other side. Others than the last do not matter."""
        if connection is not self.connection:
            return self
        return self._replace(disconnected_ms=now_ms)

    def lost(self, now_ms: int) -> Session:
        """The broker's node takes no connections."""
        return self._replace(disconnected_ms=now_ms)
