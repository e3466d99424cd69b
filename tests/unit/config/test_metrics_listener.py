"""The address at which a node shows its figures."""

from __future__ import annotations

import pytest

from barnabas.config.metrics_listener import METRICS_LISTENER, metrics_address, metrics_listener_of
from barnabas.config.values import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9308", ("127.0.0.1", 9308)), ("[::1]:0", ("::1", 0)), (":9308", ("", 9308))],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert metrics_address(text) == address


@pytest.mark.parametrize("text", ["9308", "host", "host:", "host:x", "host:65536"])
def test_anything_else_is_refused_by_the_name_of_the_setting(text: str) -> None:
    with pytest.raises(ConfigError, match=r"barnabas\.metrics\.listener is '.*': expected HOST:PORT"):
        metrics_address(text)


@pytest.mark.parametrize(
    ("text", "third"),
    [("127.0.0.1:9308", "127.0.0.1:9310"), ("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:9308", "[::1]:9310")],
)
def test_nodes_that_share_a_configuration_have_one_port_after_the_other(text: str, third: str) -> None:
    assert metrics_listener_of(3, {METRICS_LISTENER: text}) == {METRICS_LISTENER: third}


def test_without_the_setting_there_is_nothing_to_count_up() -> None:
    assert metrics_listener_of(3, {}) == {}
