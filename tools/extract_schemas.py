"""Make `src/barnabas/protocol/schemas.json` again from the jars of a release of Apache Kafka.

    python -m tools.extract_schemas JAR_FOLDER [OUTPUT]

Kafka's jars carry the definitions of its messages as JSON resources. What a codec needs of them is kept (names, types,
versions, defaults), what people need is dropped (documentation, entity types), and three things that Kafka's own
generator works out are written down, so that a reader of the file need not know its rules:

- a field without `versions` has those in which it is tagged;
- `default` is a value of the field's type: Kafka spells numbers and booleans as strings, at times in hexadecimal, and
  null as the string "null". JSON's null means no default there, and "null" here;
- `ignorable` and `latestVersionUnstable` stand only where they are true.

One message a line, sorted by name, so that the difference between two releases can be read.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parent.parent / "src" / "barnabas" / "protocol" / "schemas.json"

_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_MESSAGE_KEYS = ("apiKey", "type", "name", "listeners", "latestVersionUnstable", "validVersions", "flexibleVersions")
_FIELD_KEYS = (
    "name",
    "type",
    "versions",
    "nullableVersions",
    "taggedVersions",
    "tag",
    "flexibleVersions",
    "default",
    "ignorable",
)


def definitions_in(jar_folder: Path) -> dict[str, dict[str, Any]]:
    """The raw definitions of all messages in the jars of a folder, by name."""
    found: dict[str, dict[str, Any]] = {}
    for jar in sorted(jar_folder.glob("kafka*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if not entry.endswith(".json"):
                    continue
                definition = json.loads(without_comments(archive.read(entry).decode()))
                if isinstance(definition, dict) and "validVersions" in definition:
                    found[definition["name"]] = definition
    return found


def without_comments(text: str) -> str:
    return _STRING_OR_COMMENT.sub(lambda match: match[1] or "", text)


def compact_message(definition: dict[str, Any]) -> dict[str, Any]:
    message = {key: definition[key] for key in _MESSAGE_KEYS if key in definition}
    if not message.get("latestVersionUnstable"):
        message.pop("latestVersionUnstable", None)
    message.setdefault("flexibleVersions", "none")
    message["fields"] = [compact_field(field) for field in definition.get("fields", [])]
    if definition.get("commonStructs"):
        message["commonStructs"] = [
            {"name": struct["name"], "fields": [compact_field(field) for field in struct["fields"]]}
            for struct in definition["commonStructs"]
        ]
    return message


def compact_field(definition: dict[str, Any]) -> dict[str, Any]:
    field = {key: definition[key] for key in _FIELD_KEYS if key in definition}
    field.setdefault("versions", definition.get("taggedVersions"))
    if not field.get("ignorable"):
        field.pop("ignorable", None)
    raw_default = field.pop("default", None)
    if raw_default not in (None, ""):
        field["default"] = default_value(field["type"], raw_default)
    if definition.get("fields"):
        field["fields"] = [compact_field(nested) for nested in definition["fields"]]
    return field


def default_value(type_name: str, raw: str | int | float | bool) -> str | int | float | bool | None:
    if raw == "null":
        return None
    if type_name == "bool":
        return str(raw).lower() == "true"
    if type_name == "float64":
        return float(raw)
    if type_name == "string":
        return str(raw)
    return int(str(raw), 0)


def to_text(messages: dict[str, dict[str, Any]]) -> str:
    lines = (
        f"{json.dumps(name)}:{json.dumps(messages[name], separators=(',', ':'), ensure_ascii=False)}"
        for name in sorted(messages)
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def extract(jar_folder: Path) -> str:
    definitions = definitions_in(jar_folder)
    if not definitions:
        raise SystemExit(f"no message definitions in {jar_folder}/kafka*.jar: is it the folder of Kafka's jars?")
    return to_text({name: compact_message(definition) for name, definition in definitions.items()})


def main(arguments: list[str]) -> None:
    if not 1 <= len(arguments) <= 2:
        raise SystemExit(__doc__)
    output = Path(arguments[1]) if len(arguments) == 2 else OUTPUT
    text = extract(Path(arguments[0]))
    output.write_text(text)
    print(f"{len(json.loads(text))} messages written to {output}")


if __name__ == "__main__":
    main(sys.argv[1:])
