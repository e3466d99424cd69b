"""Options as people write them, names and texts, taken one by one so that it is known which ones are left over."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT32_MAX = (1 << 31) - 1
_TRUE, _FALSE = "true", "false"


class SettingsError(ValueError):
    """An option that is missing, contradicts another or has an impossible value. Never shows a secret."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(option, problem)
        self.option = option
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.option} {self.problem}"


class Options:
    """Reads options by name; each method takes the names that mean the same thing, of which one may be given."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name: str(value) for name, value in options.items()}
        self._taken: set[str] = set()

    def first(self, *names: str) -> tuple[str, str | None]:
        """The name under which a value was given, and the value; the first name and None where there is none."""
        self._taken.update(names)
        given = [name for name in names if name in self._values]
        if len({self._values[name] for name in given}) > 1:
            raise SettingsError(
                given[0], f"and {given[1]} are two names of one thing, and they differ: give one of them"
            )
        return (given[0], self._values[given[0]]) if given else (names[0], None)

    @overload
    def text(self, *names: str) -> str | None: ...
    @overload
    def text(self, *names: str, default: str) -> str: ...
    def text(self, *names: str, default: str | None = None) -> str | None:
        value = self.first(*names)[1]
        return default if value is None else value

    def positive(self, *names: str, default: int) -> int:
        name, text = self.first(*names)
        if text is None:
            return default
        digits = text.strip()
        if not (digits.isascii() and digits.isdigit()) or not 0 < int(digits) <= _INT32_MAX:
            raise SettingsError(name, f"is {text!r}: it takes a whole number from 1 to {_INT32_MAX}")
        return int(digits)

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        word = text.strip().lower()
        if word not in (_TRUE, _FALSE):
            raise SettingsError(name, f"is {text!r}: it takes true or false")
        return word == _TRUE

    @property
    def known(self) -> frozenset[str]:
        """What somebody has asked for, given or not."""
        return frozenset(self._taken)

    def unused(self) -> tuple[str, ...]:
        """What was given and nobody asked for."""
        return tuple(sorted(self._values.keys() - self._taken))
