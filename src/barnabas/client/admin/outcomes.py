"""How parts of an answer say that they failed, as exceptions: with the words of the broker, or Kafka's for the code."""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.retries import RETRIED
from barnabas.protocol.error_messages import message_of
from barnabas.protocol.errors import Error, KafkaError

REQUEST_TIMEOUT_MS: Final = 30_000
"""How long the controller may take to bring something about."""


def refusal(code: int, message: str | None = None) -> KafkaError | None:
    """What went wrong with a part of a request; None if nothing did."""
    error = Error(code)
    return None if error is Error.NONE else KafkaError(error, message or message_of(error))


def raise_first(refusals: dict[Any, KafkaError | None]) -> None:
    """Raise the first of what went wrong."""
    for each in refusals.values():
        if each is not None:
            raise each


def passing(code: int) -> int:
    """The error of a whole answer if another try may not meet it: any other is for the caller to put into words."""
    return code if Error(code) in RETRIED or code == Error.NOT_CONTROLLER else 0
