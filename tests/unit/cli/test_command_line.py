"""What a person types becomes values, or a complaint that says what was expected."""

from __future__ import annotations

import argparse

import pytest

from barnabas.cli import command_line


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost", ("localhost", 9092)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("broker.example:19092", ("broker.example", 19092)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
        ("::1", ("::1", 9092)),
        (" host:1 ", ("host", 1)),
        ("19092", ("127.0.0.1", 19092)),
        ("0", ("127.0.0.1", 0)),
        (":19092", ("127.0.0.1", 19092)),
        ("PLAINTEXT://broker.example:19092", ("broker.example", 19092)),
        ("plaintext://[::1]:9093", ("::1", 9093)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert command_line.parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", ":", "host:", "host:port", "host:65536", "host:-1", "[::1]:x", "65536", "SSL://h:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        command_line.parse_address(text)


def test_several_addresses_are_separated_by_commas() -> None:
    assert command_line.parse_addresses("a:1, b:2,") == [("a", 1), ("b", 2)]


def test_a_bootstrap_server_is_written_out_for_every_client_to_read() -> None:
    assert command_line.parse_bootstrap_server("19092, localhost,PLAINTEXT://[::1]:1,") == (
        "127.0.0.1:19092,localhost:9092,[::1]:1"
    )
    with pytest.raises(argparse.ArgumentTypeError, match="no address given"):
        command_line.parse_bootstrap_server(" , ")


def test_a_pair_splits_at_its_first_equals_sign() -> None:
    assert command_line.parse_pair("a.b=c=d") == ("a.b", "c=d")
    assert command_line.parse_pair("empty=") == ("empty", "")


@pytest.mark.parametrize("text", ["", "novalue", "=value", " =value"])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="key=value"):
        command_line.parse_pair(text)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many"])
def test_a_count_is_a_whole_positive_number(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        command_line.positive_int(text)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "soon"])
def test_a_timeout_is_a_finite_length_of_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        command_line.seconds(text)
