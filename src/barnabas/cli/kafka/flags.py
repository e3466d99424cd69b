"""The command lines of those tools of Kafka whose flags stand in any order: `--flag value`, `--flag=value`, `-flag`.

What is accepted, and what is said about what is not, is what joptsimple does: a flag with an argument takes the next
word whatever it looks like, a flag is never abbreviated, words that belong to no flag are left alone, and a value is
read as a number only when somebody asks for the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.cli.kafka.tool import ToolUsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1


class FlagError(ToolUsageError):
    """A word on the command line that cannot be: no such flag, no argument, two where one is meant, no number."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag with its other names."""

    names: tuple[str, ...]
    help: str
    metavar: str = ""
    """What its argument is; empty for a flag that takes none."""
    default: str | None = None
    is_optional: bool = False
    """Whether the argument may be missing."""
    is_number: bool = False
    """Whether the argument, where it may be missing, is a number: it may be negative, then."""
    separator: str | None = None
    """Splits an argument into several."""
    is_hidden: bool = False
    """Whether it is left out of the help: it is there for those who learned an older Kafka."""

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def shown(self) -> str:
        """As errors name it."""
        return f"[{', '.join(sorted(self.names, key=lambda name: (len(name) > 1, name)))}]"


HELP: Final = Flag(("help",), "Print usage information.")
VERSION: Final = Flag(("version",), "Display Kafka version.")


class Given:
    """The flags that a command line has, with their arguments."""

    def __init__(self, flags: Flags, arguments: dict[str, list[str]], others: list[str], order: list[str]) -> None:
        self._flags = flags
        self._arguments = arguments
        self.others = others
        """The words that belong to no flag."""
        self.order = order
        """The flags one after the other, as often as they were given."""

    def has(self, name: str) -> bool:
        return name in self._arguments

    def has_any(self, *names: str) -> bool:
        return any(name in self._arguments for name in names)

    def has_argument(self, name: str) -> bool:
        return bool(self._arguments.get(name))

    def texts(self, name: str) -> list[str]:
        """All its arguments, or its default."""
        flag = self._flags.named(name)
        given = self._arguments.get(name)
        if not given:
            return [] if flag.default is None else [flag.default]
        return given

    def text(self, name: str) -> str | None:
        """Its only argument, its default, or None."""
        texts = self.texts(name)
        if len(texts) > 1:
            raise FlagError(f"Found multiple arguments for option {name}, but you asked for only one")
        return texts[0] if texts else None

    def required(self, name: str) -> str:
        """Its argument, where `Flags.check_required` has made sure of one, or a default."""
        text = self.text(name)
        assert text is not None, f"--{name} is neither required nor has it a default"
        return text

    def integer(self, name: str) -> int | None:
        return self._number(name, read_int)

    def long(self, name: str) -> int | None:
        return self._number(name, read_long)

    def floating(self, name: str) -> float | None:
        return self._number(name, float)

    def _number(self, name: str, read: Callable[[str], T]) -> T | None:
        text = self.text(name)
        try:
            return None if text is None else read(text)
        except ValueError:
            raise FlagError(f"Cannot parse argument '{text}' of option {name}") from None


class Flags:
    """The flags that a tool takes."""

    def __init__(self, *flags: Flag) -> None:
        self.all = flags
        self._by_name = {name: flag for flag in flags for name in flag.names}

    def named(self, name: str) -> Flag:
        return self._by_name[name]

    def read(self, words: Sequence[str]) -> Given:
        arguments: dict[str, list[str]] = {}
        others: list[str] = []
        order: list[str] = []
        rest = list(reversed(words))
        while rest:
            word = rest.pop()
            if word == "--":
                others += reversed(rest)
                break
            if not word.startswith("-") or word == "-":
                others.append(word)
                continue
            name, has_value, value = word.lstrip("-").partition("=") if word[:2] == "--" else word[1:].partition("=")
            flag = self._recognized(word, name)
            found = arguments.setdefault(flag.name, [])
            order.append(flag.name)
            if not flag.metavar:
                # What stands behind an equals sign is left alone, as `--list=yes`.
                continue
            if not has_value:
                if flag.is_optional and (not rest or _is_flag(rest[-1], flag)):
                    continue
                if not rest:
                    raise FlagError(f"Option {_named_in_error(flag)} requires an argument")
                value = rest.pop()
            found += value.split(flag.separator) if flag.separator else [value]
        return Given(self, arguments, others, order)

    def check_required(self, given: Given, *names: str) -> None:
        """ToolUsageError for the first that is missing."""
        for name in names:
            if not given.has(name):
                raise ToolUsageError(f'Missing required argument "{self.named(name).shown}"')

    def check_invalid(self, given: Given, used: str, *others: str) -> None:
        """ToolUsageError for the first of the others that is there beside one that it cannot be used with."""
        if given.has(used):
            for name in others:
                if given.has(name):
                    shown, other = self.named(used).shown, self.named(name).shown
                    raise ToolUsageError(f'Option "{shown}" can\'t be used with option "{other}"')

    def help_text(self) -> str:
        """Every flag with what it does, in two columns."""
        import textwrap

        shown = [(f"--{_names_in_help(flag)}", flag.help) for flag in self.all if not flag.is_hidden]
        width = min(max(len(left) for left, _ in shown), 40) + 2
        lines = [f"{'Option':<{width}}Description", f"{'-' * 6:<{width}}{'-' * 11}"]
        for left, right in sorted(shown):
            first, *more = textwrap.wrap(right, 118 - width) or [""]
            if len(left) > width - 2:
                lines.append(left)
                left = ""
            lines.append(f"{left:<{width}}{first}".rstrip())
            lines += [" " * width + line for line in more]
        return "\n".join(lines)

    def _recognized(self, word: str, name: str) -> Flag:
        flag = self._by_name.get(name)
        if flag is None:
            # A word with one dash is looked at letter by letter once it is no flag as a whole.
            unknown = name if word.startswith("--") else name[:1]
            raise FlagError(f"{unknown} is not a recognized option")
        return flag


def read_int(text: str) -> int:
    """A number as Java reads an int; ValueError for what is none."""
    return _whole(text, _INT32_MAX)


def read_long(text: str) -> int:
    """The same with the range of a long."""
    return _whole(text, _INT64_MAX)


def _is_flag(word: str, before: Flag) -> bool:
    """Whether a word after a flag is one itself, and not its argument."""
    return word.startswith("-") and not (before.is_number and word[1:].isdecimal())


def _named_in_error(flag: Flag) -> str:
    return flag.name if len(flag.names) == 1 else flag.shown[1:-1].replace(", ", "/")


def _names_in_help(flag: Flag) -> str:
    names = ", --".join(flag.names)
    if not flag.metavar:
        return names
    return f"{names} [{flag.metavar}]" if flag.is_optional else f"{names} <{flag.metavar}>"


def _whole(text: str, highest: int) -> int:
    """As Java reads a number: digits of any script with a sign, no blanks, no underscores, within its range."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdecimal() or not -highest - 1 <= int(text) <= highest:
        raise ValueError(text)
    return int(text)
