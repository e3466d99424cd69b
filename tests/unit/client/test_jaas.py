"""`sasl.jaas.config` as people write it, and as they get it wrong."""

from __future__ import annotations

import pytest

from barnabas.client import jaas
from barnabas.client.jaas import JaasError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('username="alice" password="secret"', {"username": "alice", "password": "secret"}),
        ("username='alice' password='sec\"ret'", {"username": "alice", "password": 'sec"ret'}),
        ("username=alice password=secret", {"username": "alice", "password": "secret"}),
        ('\n  username = "alice"\n  password = ""\n', {"username": "alice", "password": ""}),
        (r'password="a\"b\\c\td=e;f // g"', {"password": 'a"b\\c\td=e;f // g'}),
        ('// who\nusername="alice" /* and how */ password="ünï"', {"username": "alice", "password": "ünï"}),
        ("", {}),
    ],
)
def test_a_login_module_has_options(text: str, options: dict[str, str]) -> None:
    assert jaas.parse(f"{PLAIN} required {text};") == (PLAIN, options)


@pytest.mark.parametrize("flag", ["required", "REQUIRED", "optional", "sufficient", "requisite"])
def test_with_one_module_it_does_not_matter_how_much_it_counts(flag: str) -> None:
    assert jaas.parse(f"{PLAIN} {flag} ;").name == "PlainLoginModule"


def test_a_module_is_known_by_its_class_in_whatever_package() -> None:
    assert jaas.parse(f"kafkashaded.{PLAIN} required;").name == "PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the class of a login module is missing"),
        (f"{PLAIN};", "required is missing"),
        (f'{PLAIN} username="alice";', "after the class of the login module comes `required`"),
        (f'{PLAIN} required username="hunter2"', "ends with a semicolon"),
        (f'{PLAIN} required username="hunter2;', "a quote is opened and not closed"),
        (f"{PLAIN} required username hunter2;", "the option username has no value"),
        (f"{PLAIN} required username=;", "the value of the option username is missing"),
        (f'{PLAIN} required "hunter2";', "the name of an option is missing"),
        (f'{PLAIN} required password="a" password="hunter2";', "the option password is there twice"),
        (f"{PLAIN} required; {PLAIN} required;", "one login module"),
    ],
)
def test_what_is_no_login_module_is_refused_without_telling_secrets(text: str, problem: str) -> None:
    with pytest.raises(JaasError, match=problem) as caught:
        jaas.parse(text)
    assert "hunter2" not in str(caught.value)
