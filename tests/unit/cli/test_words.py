from __future__ import annotations

import argparse

import pytest

from barnabas.cli.data.positions import parse_position
from barnabas.cli.start_command import parse_listen_address


@pytest.mark.parametrize("text", [":9092", "PLAINTEXT://:9092"])
def test_a_port_behind_a_colon_alone_is_refused_in_either_form(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="has no host"):
        parse_listen_address(text)


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.998Z", "1960-01-01T00:00:00Z"])
def test_a_time_before_1970_is_the_beginning(text: str) -> None:
    assert parse_position(text).timestamp_ms == 0
