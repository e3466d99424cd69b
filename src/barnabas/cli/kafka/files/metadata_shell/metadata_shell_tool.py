"""kafka-metadata-shell: a look into a snapshot or a log of the metadata, as into folders and files.

Kafka's takes one file with `--snapshot`, a snapshot or a segment. `--directory` is for a whole folder: the newest
snapshot and what the log has after it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.files.metadata_shell.commands import Shell, run_command
from barnabas.cli.kafka.files.metadata_shell.loading import image_of_file, image_of_folder
from barnabas.cli.kafka.files.metadata_shell.tree import tree_of
from barnabas.cli.kafka.subcommands import ToolParser
from barnabas.cli.kafka.tool import EXIT_FAILED, ToolError

if TYPE_CHECKING:
    from barnabas.metadata.image import MetadataImage

TOOL: Final = "kafka-metadata-shell"


def run(words: list[str]) -> int:
    parser = build_parser()
    options = parser.parse(words)
    if options.help:
        parser.print_help()
        return EXIT_FAILED
    if options.directory is None and options.snapshot is None:
        parser.error("argument --snapshot/-s is required")
    is_interactive = not options.words
    if is_interactive:
        print("Loading...")
    try:
        image = _image(options.snapshot, options.directory)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise ToolError(f"Unexpected error: java.nio.file.NoSuchFileException: {error.filename}") from None
        raise ToolError(f"Unexpected error: {error.filename}: {error.strerror}") from None
    shell = Shell(tree_of(image))
    if is_interactive:
        from barnabas.cli.kafka.files.metadata_shell.terminal import run_at_terminal

        print("Starting...")
        run_at_terminal(shell)
    else:
        for line in run_command(shell, options.words):
            sys.stdout.write(f"{line}\n")
    return EXIT_OK


def build_parser() -> ToolParser:
    parser = ToolParser(TOOL, description="Look around in the metadata of a cluster.", add_help=False)
    parser.add_argument("--help", "-h", action="store_true", help="show this help message and exit")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--snapshot", "-s", metavar="FILE", help="a snapshot, or a segment of the metadata log")
    source.add_argument("--directory", "-d", metavar="DIR", help="the folder of the metadata log, or of a node")
    parser.add_argument("words", nargs="*", metavar="command", help="what to run; without it, commands are read")
    return parser


def _image(snapshot: str | None, directory: str | None) -> MetadataImage:
    if snapshot is not None:
        return image_of_file(os.path.normpath(snapshot))
    assert directory is not None, "one of them is given"
    return image_of_folder(directory)
