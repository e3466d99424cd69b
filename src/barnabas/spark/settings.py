"""What the options of a source or a sink say to the client."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.client.settings import ClientSettings, SettingsError
from barnabas.spark.given import CLIENT_PREFIX, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def client_settings(client: Mapping[str, str]) -> ClientSettings:
    """How to reach the cluster, from options without `kafka.`."""
    with naming_the_option():
        return ClientSettings.from_options(client)


@contextmanager
def naming_the_option() -> Iterator[None]:
    """What is wrong with a setting of the client is said of the option as it was given, with `kafka.` before it."""
    try:
        yield
    except SettingsError as error:
        raise OptionError(CLIENT_PREFIX + error.option, error.problem) from error
