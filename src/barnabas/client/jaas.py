"""The value of `sasl.jaas.config`: how Java's clients are given a user and a password.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";

One login module, a word that says how much it matters (of no consequence with one module), and its options. Names and
values are bare words or stand in quotes, in which a backslash takes the special meaning from what follows it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

OPTION: Final = "sasl.jaas.config"

_TOKEN: Final = re.compile(
    r"""
    \s+ | //[^\n]* | /\*.*?\*/
    | (?P<quoted> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
    | (?P<mark> [=;] )
    | (?P<word> [^\s=;"']+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t"}
_CONTROL_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})


class JaasError(ValueError):
    """Not a login module and its options. The text says where, and never repeats a value: it may be a password."""


class LoginModule(NamedTuple):
    class_name: str
    options: dict[str, str]

    @property
    def name(self) -> str:
        """The class without its package, under which products that repackage Kafka's client have it too."""
        return self.class_name.rpartition(".")[2]


class _Token(NamedTuple):
    kind: str
    text: str


def parse(text: str) -> LoginModule:
    """The one login module of a `sasl.jaas.config`."""
    tokens = _tokens(text)
    class_name = _take(tokens, "word", "the class of a login module")
    flag = _take(tokens, "word", "required").lower()
    if flag not in _CONTROL_FLAGS:
        raise JaasError("after the class of the login module comes `required`")
    options: dict[str, str] = {}
    while tokens and tokens[-1] != _Token("mark", ";"):
        name = _take(tokens, "word", "the name of an option")
        if not tokens or tokens.pop() != _Token("mark", "="):
            raise JaasError(f'the option {name} has no value: it is written {name}="…"')
        if name in options:
            raise JaasError(f"the option {name} is there twice")
        options[name] = _value(tokens, name)
    if not tokens:
        raise JaasError("it ends with a semicolon")
    tokens.pop()
    if tokens:
        raise JaasError("there is one login module: nothing follows its semicolon")
    return LoginModule(class_name, options)


def _tokens(text: str) -> list[_Token]:
    """The tokens in reverse, so that the next one is popped off the end."""
    tokens, position = [], 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise JaasError("a quote is opened and not closed")
        if found.lastgroup is not None:
            tokens.append(_Token(found.lastgroup, found[0]))
        position = found.end()
    return tokens[::-1]


def _take(tokens: list[_Token], kind: str, what: str) -> str:
    if not tokens or tokens[-1].kind != kind:
        raise JaasError(f"{what} is missing")
    return tokens.pop().text


def _value(tokens: list[_Token], name: str) -> str:
    if tokens and tokens[-1].kind == "quoted":
        inner = tokens.pop().text[1:-1]
        return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), inner)
    return _take(tokens, "word", f"the value of the option {name}")
