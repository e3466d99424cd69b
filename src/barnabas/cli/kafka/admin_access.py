"""The cluster as Kafka's administrative tools see it, and their words for one that does not answer."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.cluster_access import cluster_at, is_unreachable, read_properties_file
from barnabas.cli.kafka.java.java_exceptions import exception_name
from barnabas.cli.kafka.tool import ToolError
from barnabas.client.client_settings import ClientSettings
from barnabas.net.frames import UnsupportedVersionError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.error_messages import message_of
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.client.cluster import Cluster

NO_CLIENT: Final = "Failed to create new KafkaAdminClient"


class AskError(ToolError):
    """The cluster refuses, or does not answer."""

    def __init__(self, error: Error, message: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.error = error

    @property
    def with_name(self) -> str:
        """What it says, as Java prints an exception."""
        return f"{exception_name(self.error)}: {self.message}"


def properties_at(path: str | None) -> dict[str, str]:
    """The properties of `--command-config`, if that was given."""
    return {} if path is None else read_properties_file(path)


def patient_for(timeout_ms: int, properties: Mapping[str, str]) -> dict[str, str]:
    """Properties with which a call takes no longer than that, and so none of its tries does."""
    try_ms = properties.get("request.timeout.ms", str(ClientSettings.request_timeout_ms))
    if try_ms.isdecimal():
        try_ms = str(min(int(try_ms), timeout_ms))
    return {**properties, "default.api.timeout.ms": str(timeout_ms), "request.timeout.ms": try_ms}


@contextlib.contextmanager
def admin_at(
    bootstrap: str, properties: Mapping[str, str] | None = None, *, at_controllers: bool = False
) -> Iterator[Cluster]:
    """A cluster for the time of the block; ToolError for one that is nowhere."""
    with contextlib.ExitStack() as stack:
        try:
            _check_timeouts(properties or {})
            cluster = stack.enter_context(cluster_at(bootstrap, properties, at_controllers=at_controllers))
            check_names(cluster.settings)
        except ToolError as failure:
            why = ": ".join(filter(None, (failure.message, failure.hint)))
            raise ToolError(NO_CLIENT, hint=why) from None
        yield cluster


@contextlib.contextmanager
def asking(call: str) -> Iterator[None]:
    """Turn what goes wrong with a question into what Kafka's admin client says; it has a name for each question."""
    try:
        yield
    except KafkaError as failure:
        if is_unreachable(failure):
            raise AskError(
                Error.REQUEST_TIMED_OUT, f"Timed out waiting for a node assignment. Call: {call}", failure.message
            ) from None
        cause = failure.__cause__
        if isinstance(cause, UnsupportedVersionError) and cause.api_key is not None:
            words = f"The node does not support {ApiKey(cause.api_key).name}"
            raise AskError(failure.error, words, failure.message) from None
        raise AskError(failure.error, failure.message or message_of(failure.error)) from None


@contextlib.contextmanager
def asking_by_name(call: str) -> Iterator[None]:
    """The same for those tools that print the name of the exception as well."""
    try:
        with asking(call):
            yield
    except AskError as failure:
        raise AskError(failure.error, failure.with_name, failure.hint) from None


def said_of(failure: KafkaError, call: str) -> AskError:
    """What went wrong with one of several things that were asked for in one call."""
    try:
        with asking(call):
            raise failure
    except AskError as error:
        return error


def _check_timeouts(properties: Mapping[str, str]) -> None:
    """ToolError where all tries together may take no longer than one of them."""
    default = ClientSettings.request_timeout_ms
    texts = [properties.get("default.api.timeout.ms", ""), properties.get("request.timeout.ms", str(default))]
    if all(text.isdecimal() for text in texts) and int(texts[0]) < int(texts[1]):
        raise ToolError(
            "The specified value of default.api.timeout.ms must be no smaller than the value of request.timeout.ms."
        )


def check_names(settings: ClientSettings) -> None:
    """Fail at once where no bootstrap server has a name that leads anywhere: that will not pass by waiting."""
    for server in settings.bootstrap_servers:
        try:
            socket.getaddrinfo(server.host, server.port)
        except OSError:
            continue
        return
    names = ", ".join(server.host for server in settings.bootstrap_servers)
    raise ToolError("No resolvable bootstrap urls given in bootstrap.servers", hint=names)
