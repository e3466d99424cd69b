"""Regular expressions of Java's, as Python's `re` has them: for what people write in a command line, they are the same.

Where one is wrong, it is said as Java says it.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)|\\(?P<sign>[pP])\{(?P<name>\w+)\}|\\.|(?P<opening>\[)|(?P<closing>\])|[^\\\[\]]+",
    re.DOTALL,
)
_CLASSES: Final = {
    "Alnum": "a-zA-Z0-9",
    "Alpha": "a-zA-Z",
    "Blank": " \\t",
    "Digit": "0-9",
    "IsAlphabetic": "^\\W\\d_",
    "IsDigit": "\\d",
    "L": "^\\W\\d_",
    "Lower": "a-z",
    "N": "\\d",
    "Punct": "!-/:-@\\[-`{-~",
    "Space": "\\s",
    "Upper": "A-Z",
    "XDigit": "0-9a-fA-F",
    "javaLowerCase": "a-z",
    "javaUpperCase": "A-Z",
}
"""Classes of characters by Java's names, as they stand between brackets."""
_REASONS: Final = {
    "unterminated character set": "Unclosed character class",
    "missing ), unterminated subpattern": "Unclosed group",
    "unbalanced parenthesis": "Unmatched closing ')'",
    "nothing to repeat": "Dangling meta character '{character}'",
    "bad escape (end of pattern)": "Unexpected internal error",
}
_AT_THE_END: Final = {"Unclosed character class": 1, "Unclosed group": 0, "Unexpected internal error": 0}
"""What Java notices only when the text is over, and how far before its end it says that was."""
_BEFORE: Final = frozenset({"Unmatched closing ')'"})


class RegexError(ValueError):
    """No regular expression; the text is what Java says of it, in several lines."""


def compile_regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(_pythons(text))
    except re.error as error:
        raise RegexError(_javas_words(text, error)) from None


def _pythons(text: str) -> str:
    """The expression without what only Java has."""
    parts: list[str] = []
    depth = 0
    for found in _TOKEN.finditer(text):
        depth = max(depth + (found["opening"] is not None) - (found["closing"] is not None), 0)
        parts.append(_part(found, is_in_brackets=depth > 0))
    return "".join(parts)


def _part(found: re.Match[str], *, is_in_brackets: bool) -> str:
    if found["quoted"] is not None:
        return re.escape(found["quoted"])
    members = _CLASSES.get(found["name"] or "")
    if members is None:
        return found[0]
    is_all_but = (found["sign"] == "P") != members.startswith("^")
    members = members.removeprefix("^")
    if not is_in_brackets:
        return f"[^{members}]" if is_all_but else f"[{members}]"
    return found[0] if is_all_but else members


def split(pattern: re.Pattern[str], text: str) -> list[str]:
    """`Pattern.split`: without what is empty at the end, and with nothing empty before a match of nothing."""
    parts: list[str] = []
    start = 0
    for found in pattern.finditer(text):
        if found.end() == 0:
            continue
        parts.append(text[start : found.start()])
        start = found.end()
    parts.append(text[start:])
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _javas_words(text: str, error: re.error) -> str:
    position = error.pos or 0
    reason = _REASONS.get(error.msg, error.msg).format(character=text[position : position + 1])
    if reason in _AT_THE_END:
        position = len(text) - _AT_THE_END[reason]
    if reason in _BEFORE:
        position -= 1
    near = f" near index {position}" if position >= 0 else ""
    mark = f"\n{' ' * position}^" if 0 <= position < len(text) else ""
    return f"{reason}{near}\n{text}{mark}"
