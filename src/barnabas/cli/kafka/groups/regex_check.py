"""Whether a regular expression is one of RE2, as brokers want them that match topics for groups."""

from __future__ import annotations

import re
from typing import Final

_REASONS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "regexp/syntax: internal error",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid escape sequence": "invalid escape sequence",
    "invalid repetition size": "invalid repeat count",
    "invalid character class range": "invalid character class range",
    "invalid character class": "invalid character class",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""The words of the library here, and those of Java's."""
_NAME: Final = re.compile(r"(?<!\\)\(\?P?<(\w+)>")


def validate_regex(text: str) -> None:
    reason = what_is_wrong(text)
    if reason is None:
        print(f"The regular expression `{text}` is valid.")
    else:
        print(f"The regular expression `{text}` is invalid: {reason}.")


def what_is_wrong(text: str) -> str | None:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(text, options=options)
    except re2.error as error:
        said = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error.args[0])
        what = said.partition(":")[0]
        return _REASONS.get(what, what)
    names = _NAME.findall(text)
    return "duplicate capture group name" if len(names) != len(set(names)) else None
