"""Options as users write them, with names in any case and values as text, turned into values or into clear errors."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

T = TypeVar("T")

FORMAT: Final = "barnabas"
CLIENT_PREFIX: Final = "kafka."

_PROVIDER: Final = "provider"
_OPTION_OF_TABLE: Final = "option."
_PATH: Final = "path"

_USUAL_MISTAKES: Final = {"topic": "subscribe", "topics": "subscribe"}
_DURATION: Final = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)
_MS_OF_UNIT: Final = {
    "us": 0.001,
    "ms": 1,
    "": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_LONG_MAX: Final = (1 << 63) - 1
INT_MAX: Final = (1 << 31) - 1


class OptionError(ValueError):
    """An option that is unknown, missing, invalid or in conflict with another one."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(option, problem)
        self.option = option
        self.problem = problem

    def __str__(self) -> str:
        return f"option {self.option} {self.problem}"


class RawOptions:
    """Options as they were given, with names in any case. Unknown names are refused at once.

    The properties that Spark adds for a table of a catalog are not options, and are left out.
    """

    def __init__(self, options: Mapping[str, str], *, known: Collection[str], of: str) -> None:
        spelling = {name.lower(): name for name in known}
        properties = _properties_of_table(options)
        self.client: dict[str, str] = {}
        self._values: dict[str, str] = {}
        if not options:
            # Spark passes a Python source only the options of the query, not those of its table.
            raise OptionError(
                "kafka.bootstrap.servers",
                "is missing, and so are all others: it says where the cluster is. In SQL, queries do not see the "
                "options of CREATE TABLE; use CREATE TEMPORARY VIEW",
            )
        for name, value in options.items():
            lower = name.lower()
            if lower.startswith(CLIENT_PREFIX):
                self.client[lower.removeprefix(CLIENT_PREFIX)] = str(value)
            elif lower in spelling:
                self._values[spelling[lower]] = str(value).strip()
            elif lower not in properties:
                raise OptionError(name, f"is not known to {of}{_nearest(lower, spelling)}")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """A value, or None if the option is not given. It must not be empty."""
        value = self._values.get(name)
        if value == "":
            raise OptionError(name, "is empty")
        return value

    def read(self, name: str, parse: Callable[[str], T], *, default: str) -> T:
        """A value converted by `parse`, whose ValueError says which values the option takes."""
        text = self._values.get(name, default)
        try:
            return parse(text)
        except ValueError as error:
            raise OptionError(name, f"is {text!r}: {error}") from error

    def number(self, name: str, *, minimum: int = 1, maximum: int = _LONG_MAX) -> int | None:
        """A whole number, or None if the option is not given."""
        return self.read(name, lambda text: _whole(text, minimum, maximum), default="") if name in self else None

    def time_ms(self, name: str) -> int | None:
        """A timestamp, or None if the option is not given."""
        what = "a timestamp in milliseconds since 1970 as a whole number"
        return self.read(name, lambda text: _whole(text, 0, _LONG_MAX, what), default="") if name in self else None

    def count(self, name: str, *, default: int) -> int:
        return self.read(name, lambda text: _whole(text, 0, INT_MAX), default=str(default))

    def one_of(self, name: str, meanings: Mapping[str, T], *, default: str) -> T:
        """The meaning of one of these words, which may be in any case."""
        return self.read(name, lambda text: _meaning(text, meanings), default=default)

    def flag(self, name: str, *, default: str) -> bool:
        return self.one_of(name, {"true": True, "false": False}, default=default)


def _properties_of_table(options: Mapping[str, str]) -> frozenset[str]:
    """The names, in lower case, that are properties of a catalog table (`CREATE TABLE … USING barnabas`).

    Spark passes them among the table's options: its own (provider, owner, comment and more) and those of TBLPROPERTIES.
    Each real option of a table is passed a second time as `option.<name>`, which tells a misspelt option from a
    property. The path, from LOCATION or from an option, is passed only once; it is never a property, because a topic
    has no path and the user should be told.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    if given.get(_PROVIDER, "").lower() != FORMAT:
        return frozenset()
    return frozenset(name for name in given if name != _PATH and _OPTION_OF_TABLE + name not in given)


def _meaning(text: str, meanings: Mapping[str, T]) -> T:
    if text.lower() not in meanings:
        raise ValueError(f"it takes {' or '.join(meanings)}")
    return meanings[text.lower()]


def _whole(text: str, minimum: int, maximum: int, what: str = "a whole number") -> int:
    if not (text.isascii() and text.isdigit()) or not minimum <= int(text) <= maximum:
        raise ValueError(f"it takes {what}, {minimum} or greater")
    return int(text)


def duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None or found[2].lower() not in _MS_OF_UNIT:
        raise ValueError("it takes a duration with a unit (ms, s, m, h or d), as in 90s")
    return int(int(found[1]) * _MS_OF_UNIT[found[2].lower()])


def check_client(
    client: Mapping[str, str], forbidden: Mapping[str, str], servers: tuple[str, ...] = ("bootstrap.servers",)
) -> None:
    """Checks that one of `servers` says where the cluster is, and that nothing is set that a pipeline must not set."""
    if not any(name in client for name in servers):
        close = get_close_matches("bootstrap.servers", client, n=1)
        hint = f"; is {CLIENT_PREFIX}{close[0]} a misspelling of it?" if close else ", as in host:9092,other:9092"
        raise OptionError("kafka.bootstrap.servers", f"is missing: it says where the cluster is{hint}")
    for name, instead in forbidden.items():
        if name in client:
            raise OptionError(CLIENT_PREFIX + name, f"cannot be set in a pipeline: {instead}")


def _nearest(name: str, spelling: Mapping[str, str]) -> str:
    """The end of an error message: the option that was probably meant, else all of them."""
    if (usual := _USUAL_MISTAKES.get(name)) is not None and usual.lower() in spelling:
        return f"; did you mean {usual}?"
    if close := get_close_matches(name, spelling, n=1):
        return f"; did you mean {spelling[close[0]]}?"
    if "." in name:
        return f"; client settings begin with kafka., as in {CLIENT_PREFIX}{name}"
    return f"; the options are {', '.join(spelling.values())}, and client settings, which begin with kafka."
