"""Java's `.properties` format, in which Kafka's configuration files are written.

Lines that begin with `#` or `!` are comments; a backslash at the end of a line joins it with the next, whose
leading white space is dropped; a key ends at the first `=`, `:` or white space; `\\t \\n \\r \\f \\uXXXX` are
escapes and any other escaped character stands for itself. If a key occurs more than once, the last one wins.
"""

from collections.abc import Iterator, Mapping

_WHITE_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


class PropertiesError(ValueError):
    """A properties text that cannot be parsed; the message begins with the line number."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values, in the order in which the keys first occur."""
    properties = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key, number)] = _unescape(value, number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are neither blank nor comments, with continuations joined, each with its first line number."""
    joined, first = "", 0
    # Not splitlines: Java ends lines at \n, \r and \r\n only.
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = raw.lstrip(_WHITE_SPACE)
        if not joined and (not line or line[0] in "#!"):
            continue
        first = first or number
        if _ends_with_open_backslash(line):
            joined += line[:-1]
            if joined:
                continue
        elif joined + line:
            yield first, joined + line
        joined, first = "", 0
    if joined:
        yield first, joined


def _ends_with_open_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Key and value, both still escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _WHITE_SPACE:
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(_WHITE_SPACE)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_WHITE_SPACE)
    return line[:end], value


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    plain: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            plain.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped != "u":
            plain.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[position : position + 4]
        position += 4
        if len(digits) < 4 or not _HEX_DIGITS.issuperset(digits):
            raise PropertiesError(line, f"Malformed \\uxxxx encoding: \\u{digits}")
        plain.append(chr(int(digits, 16)))
    return _join_surrogates("".join(plain))


def _join_surrogates(text: str) -> str:
    """Characters beyond U+FFFF are escaped as two halves; a half on its own stays as it is."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def format_properties(properties: Mapping[str, str]) -> str:
    """A properties text with one line per key, which parses back to the same mapping."""
    return "".join(f"{_escape(key, ' ')}={_escape(value, '')}\n" for key, value in properties.items())


def _escape(text: str, everywhere: str) -> str:
    escaped = []
    for position, character in enumerate(text):
        if character in "\\=:#!" or character in everywhere or (character == " " and position == 0):
            escaped.append("\\" + character)
        elif character in "\t\n\r\f":
            escaped.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[character])
        elif " " <= character <= "~":
            escaped.append(character)
        else:
            escaped.append(_escape_unicode(character))
    return "".join(escaped)


def _escape_unicode(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index]:02X}{units[index + 1]:02X}" for index in range(0, len(units), 2))
