"""The commands of the shell: what they are called with, and what they print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.kafka.files.metadata_shell.paths import resolved
from barnabas.cli.kafka.files.metadata_shell.tree import Folder
from barnabas.cli.kafka.flags import read_int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.cli.kafka.files.metadata_shell.tree import Node

WELCOME: Final = "Welcome to the Apache Kafka metadata shell."
_INDENT: Final = "  "
_HELP_COLUMN: Final = 25
_COLUMN_GAP: Final = 2
_COLUMN_WIDTH_MIN: Final = 4


class Shell:
    """Where somebody is in the tree, and what was typed before."""

    def __init__(self, root: Folder, screen_width: int | None = None) -> None:
        self.root = root
        self.screen_width = screen_width
        """None if nobody sits at a terminal."""
        self.working_folder = "/"
        self.history: list[str] = []

    @property
    def is_interactive(self) -> bool:
        return self.screen_width is not None


class ExitRequestedError(Exception):
    """Somebody has typed `exit`."""


class Command(NamedTuple):
    summary: str
    run: Callable[[Shell, list[str]], Iterator[str]]
    argument: str = ""
    argument_help: str = ""
    counts: tuple[int, int | None] = (0, 0)
    """How many arguments at least, and at most."""
    is_for_terminals: bool = False

    @property
    def usage(self) -> str:
        """How arguments are given."""
        least, most = self.counts
        if not self.argument:
            return ""
        if most is None:
            more = f"[{self.argument} ...]"
            return f" {self.argument} {more}" if least else f" [{self.argument} {more}]"
        return f" {self.argument}" if least else f" [{self.argument}]"


def run_command(shell: Shell, words: Sequence[str]) -> Iterator[str]:
    """The lines that a command prints. A mistake is a line as well, as in Kafka's shell."""
    given = list(words)
    while given and not given[-1]:
        given.pop()
    if not given:
        return
    word, *rest = given
    known = [name for name, each in COMMANDS.items() if shell.is_interactive or not each.is_for_terminals]
    named = [word] if word in known else [name for name in known if name.startswith(word)]
    if len(named) != 1:
        choices = ", ".join(f"'{name}'" for name in known)
        yield f"invalid choice: '{word}' (choose from {choices})"
        return
    command = COMMANDS[named[0]]
    arguments, mistake = _arguments(command, rest)
    if arguments is None and mistake is None:
        yield from _help(f" {named[0]} [-h]{command.usage}", command, has_help=True)
    elif mistake is not None or arguments is None:
        yield str(mistake)
    elif named[0] != word:
        yield f"invalid choice: '{word}': did you mean '{named[0]}'?"
    else:
        yield from command.run(shell, arguments)


def _arguments(command: Command, words: list[str]) -> tuple[list[str] | None, str | None]:
    """The arguments, or what is wrong with them; neither if somebody asks for help."""
    arguments: list[str] = []
    for number, word in enumerate(words):
        if word == "--":
            arguments += words[number + 1 :]
            break
        if word in ("-h", "--help"):
            return None, None
        if word.startswith("-") and len(word) > 1:
            return None, f"unrecognized arguments: '{word}'"
        arguments.append(word)
    least, most = command.counts
    if len(arguments) < least:
        return None, "too few arguments"
    if most is not None and len(arguments) > most:
        return None, f"unrecognized arguments: '{arguments[most]}'"
    return arguments, None


def _cat(shell: Shell, targets: list[str]) -> Iterator[str]:
    for target in targets:
        found = False
        for place in resolved(shell.root, shell.working_folder, target):
            found = True
            if isinstance(place.node, Folder):
                yield f"cat: {target}: Is a directory"
            else:
                yield place.node
        if not found:
            yield f"cat: {target}: No such file or directory."


def _cd(shell: Shell, arguments: list[str]) -> Iterator[str]:
    target = arguments[0] if arguments else "/"
    found = False
    for place in resolved(shell.root, shell.working_folder, target):
        found = True
        if isinstance(place.node, Folder):
            shell.working_folder = place.absolute
        else:
            yield f"cd: {target}: not a directory."
    if not found:
        yield f"cd: {target}: no such directory."


def _find(shell: Shell, paths: list[str]) -> Iterator[str]:
    for path in _given_or_here(paths):
        found = False
        for place in resolved(shell.root, shell.working_folder, path):
            found = True
            yield from _below(path, place.node)
        if not found:
            yield f"find: {path}: no such file or directory."


def _below(path: str, node: Node) -> Iterator[str]:
    yield path
    if isinstance(node, Folder):
        for name in node.names:
            child = node.child(name)
            if child is not None:
                yield from _below(f"{path}{name}" if path == "/" else f"{path}/{name}", child)


def _tree(shell: Shell, targets: list[str]) -> Iterator[str]:
    for target in targets:
        found = False
        for place in resolved(shell.root, shell.working_folder, target):
            found = True
            yield from _printed(place.node, "")
        if not found:
            yield f"tree: {target}: No such file or directory."


def _printed(node: Node | None, indent: str) -> Iterator[str]:
    if isinstance(node, Folder):
        for name in node.names:
            yield f"{indent}{name}:"
            yield from _printed(node.child(name), indent + _INDENT)
    elif node is not None:
        yield f"{indent}{node}"


def _ls(shell: Shell, targets: list[str]) -> Iterator[str]:
    files: list[str] = []
    folders: list[tuple[str, list[str]]] = []
    for target in _given_or_here(targets):
        found = False
        for place in resolved(shell.root, shell.working_folder, target):
            found = True
            if isinstance(place.node, Folder):
                folders.append((place.name, place.node.names))
            else:
                files.append(place.name)
        if not found:
            yield f"ls: {target}: no such file or directory."
    yield from in_columns(files, shell.screen_width)
    is_first = not files
    for name, names in folders:
        if names and (files or len(folders) > 1):
            yield f"{name}:" if is_first else f"\n{name}:"
        is_first = False
        yield from in_columns(names, shell.screen_width)


def in_columns(entries: Sequence[str], screen_width: int | None) -> Iterator[str]:
    """Names below each other, in as many columns as a screen has room for."""
    if not entries:
        return
    most = 1 if screen_width is None else max(screen_width // _COLUMN_WIDTH_MIN, 1)
    rows, widths = len(entries), [0]
    for columns in range(most, 0, -1):
        rows = -(-len(entries) // columns)
        parts = [entries[at : at + rows] for at in range(0, len(entries), rows)]
        widths = [max(map(len, part)) + _COLUMN_GAP for part in parts]
        if columns == 1 or (len(parts) == columns and sum(widths) <= (screen_width or 0)):
            break
    for row in range(rows):
        cells = entries[row::rows]
        last = len(widths) - 1
        yield "".join(cell if at == last else cell.ljust(widths[at]) for at, cell in enumerate(cells))


def _given_or_here(paths: list[str]) -> list[str]:
    return [path for path in paths if path] or ["."]


def _pwd(shell: Shell, _: list[str]) -> Iterator[str]:
    yield shell.working_folder


def _exit(_: Shell, __: list[str]) -> Iterator[str]:
    raise ExitRequestedError


def _history(shell: Shell, arguments: list[str]) -> Iterator[str]:
    count = len(shell.history)
    if arguments:
        try:
            count = min(max(read_int(arguments[0]), 0), count)
        except ValueError:
            text = arguments[0]
            yield f"argument numEntriesToShow: could not convert '{text}' to Integer (For input string: \"{text}\")"
            return
    first = len(shell.history) - count
    for number, line in enumerate(shell.history[first:], first):
        yield f"{number: 5d}  {line}"


def _man(_: Shell, arguments: list[str]) -> Iterator[str]:
    name = arguments[0]
    command = COMMANDS.get(name)
    if command is None:
        yield f"man: unknown command {name}. Type help to get a list of commands."
        return
    yield f"{name}: {command.summary}"
    yield ""
    yield from _help(f"{name}{command.usage}", command)


def _help(usage: str, command: Command, *, has_help: bool = False) -> Iterator[str]:
    yield f"usage: {usage}"
    if command.argument:
        yield "\npositional arguments:"
        yield f"{_INDENT}{command.argument:<{_HELP_COLUMN - len(_INDENT)}}{command.argument_help}"
    if has_help:
        yield "\noptional arguments:"
        yield f"{_INDENT}{'-h, --help':<{_HELP_COLUMN - len(_INDENT)}}show this help message and exit"


def _help_for_all(_: Shell, __: list[str]) -> Iterator[str]:
    names = f"{{{','.join(COMMANDS)}}}"
    yield WELCOME
    yield f"\nusage:  {names} ..."
    yield f"\npositional arguments:\n{_INDENT}{names}"
    for name, command in COMMANDS.items():
        yield f"{_INDENT * 2}{name:<{_HELP_COLUMN - len(_INDENT) * 2}}{command.summary}"


_PATHS: Final = (0, None)
_SOME_PATHS: Final = (1, None)

COMMANDS: Final[dict[str, Command]] = {
    "cat": Command(
        "Show the contents of metadata files.", _cat, "targets", "The metadata files to display.", _SOME_PATHS
    ),
    "cd": Command(
        "Set the current working directory.",
        _cd,
        "target",
        "The directory to change to.",
        (0, 1),
        is_for_terminals=True,
    ),
    "exit": Command("Exit the metadata shell.", _exit, is_for_terminals=True),
    "find": Command("Search for nodes in the directory hierarchy.", _find, "paths", "The paths to start at.", _PATHS),
    "help": Command("Display this help message.", _help_for_all, is_for_terminals=True),
    "history": Command(
        "Print command history.",
        _history,
        "numEntriesToShow",
        "The number of entries to show.",
        (0, 1),
        is_for_terminals=True,
    ),
    "ls": Command("List metadata nodes.", _ls, "targets", "The metadata node paths to list.", _PATHS),
    "man": Command(
        "Show the help text for a specific command.",
        _man,
        "cmd",
        "The command to get help text for.",
        (1, 1),
        is_for_terminals=True,
    ),
    "pwd": Command("Print the current working directory.", _pwd, is_for_terminals=True),
    "tree": Command(
        "Show the contents of metadata nodes in a tree structure.",
        _tree,
        "targets",
        "The metadata nodes to display.",
        _SOME_PATHS,
    ),
}
"""By their names, in their order."""
