"""kafka-dump-log: shows what is in segments, indexes and snapshots, and whether indexes agree with their segments."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.files.dump_log.complaints import Complaints
from barnabas.cli.kafka.files.dump_log.decoders import DECODER_FLAGS, decoder_of
from barnabas.cli.kafka.files.dump_log.file_names import as_java_has_it, suffix_of
from barnabas.cli.kafka.files.dump_log.index_dumps import (
    IndexCheck,
    dump_aborted_transactions,
    dump_offset_index,
    dump_producers,
    dump_time_index,
)
from barnabas.cli.kafka.files.dump_log.log_dump import Depth, dump_log
from barnabas.cli.kafka.files.dump_log.page import Page
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, Flags, Given
from barnabas.cli.kafka.tool import ToolError, print_help, print_version, warn
from barnabas.log.segments.file_names import LOG, OFFSET_INDEX, PRODUCER_SNAPSHOT, TIME_INDEX, TXN_INDEX
from barnabas.raft.folder.snapshots import SUFFIX as CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Callable

SUMMARY: Final = (
    "This tool helps to parse a log file and dump its contents to the console, "
    "useful for debugging a seemingly corrupt log segment."
)
_STRING_DECODER: Final = "org.apache.kafka.tools.api.StringDecoder"

FLAGS: Final = Flags(
    Flag(("files",), "The files to show, with commas between them. Required.", "file1, file2, ..."),
    Flag(("print-data-log",), "Show the records of segments too. A decoder does so as well."),
    Flag(("deep-iteration",), "Show what is known of each record, without its key and value."),
    Flag(("skip-record-metadata",), "Of records, show nothing but key and value; of control records, nothing."),
    Flag(("verify-index-only",), "Compare indexes with their segments, and show what does not agree."),
    Flag(("index-sanity-check",), "Check of indexes what a broker checks when it starts."),
    Flag(("max-message-size",), "How large a batch may be that an index leads to.", "size", default="5242880"),
    Flag(("max-bytes",), "How much of each segment is read.", "size", default="2147483647"),
    Flag(
        ("key-decoder-class",),
        f"How keys are shown: one of the classes String-, Integer-, Long- and DefaultDecoder in "
        f"{_STRING_DECODER.rpartition('.')[0]}.",
        "class",
        default=_STRING_DECODER,
        is_optional=True,
    ),
    Flag(("value-decoder-class",), "The same for values.", "class", default=_STRING_DECODER, is_optional=True),
    Flag(("offsets-decoder",), "Show records as those of __consumer_offsets."),
    Flag(("transaction-log-decoder",), "Show records as those of __transaction_state."),
    Flag(("cluster-metadata-decoder",), "Show records as those of the metadata log."),
    Flag(("remote-log-metadata-decoder",), "Show records as those of __remote_log_metadata."),
    Flag(("share-group-state-decoder",), "Show records as those of __share_group_state."),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    given = FLAGS.read(words)
    if not words or given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    FLAGS.check_required(given, "files")
    complaints = Complaints()
    sys.stdout.flush()
    with Page(sys.stdout.buffer) as page:
        for path in _paths(given.required("files")):
            page.line(f"Dumping {path}")
            try:
                dump(path, given, page, complaints)
            except OSError as error:
                raise ToolError(_file_error(error)) from None
    complaints.print()
    return EXIT_OK


def _paths(text: str) -> list[str]:
    """Nothing between commas is a file too, except at the end."""
    paths = text.split(",")
    while len(paths) > 1 and not paths[-1]:
        paths.pop()
    return [] if paths == [""] and text else [as_java_has_it(path) for path in paths]


def dump(path: str, given: Given, page: Page, complaints: Complaints) -> None:
    show = _DUMPS.get(suffix_of(path))
    if show is None:
        page.flush()
        warn(f"Ignoring unknown file {path}")
    else:
        show(path, given, page, complaints)


def _dump_log(path: str, given: Given, page: Page, complaints: Complaints) -> None:
    depth = None
    shows_contents = given.has_any("print-data-log", *DECODER_FLAGS)
    decoder = decoder_of(given)
    if shows_contents or given.has("deep-iteration"):
        depth = Depth(not given.has("skip-record-metadata"), decoder if shows_contents else None)
    bytes_max = given.integer("max-bytes")
    assert bytes_max is not None, "it has a default"
    dump_log(path, depth, bytes_max, page, complaints)


def _dump_offset_index(path: str, given: Given, page: Page, complaints: Complaints) -> None:
    message_bytes_max = given.integer("max-message-size")
    assert message_bytes_max is not None, "it has a default"
    dump_offset_index(path, _check(given), message_bytes_max, page, complaints)


def _dump_time_index(path: str, given: Given, page: Page, complaints: Complaints) -> None:
    dump_time_index(path, _check(given), page, complaints)


def _check(given: Given) -> IndexCheck:
    return next((check for check in IndexCheck if given.has(check.value)), IndexCheck.PRINT)


_DUMPS: Final[dict[str, Callable[[str, Given, Page, Complaints], None]]] = {
    LOG: _dump_log,
    CHECKPOINT: _dump_log,
    OFFSET_INDEX: _dump_offset_index,
    TIME_INDEX: _dump_time_index,
    PRODUCER_SNAPSHOT: lambda path, _, page, __: dump_producers(path, page),
    TXN_INDEX: lambda path, _, page, __: dump_aborted_transactions(path, page),
}


def _file_error(error: OSError) -> str:
    """As Java says it: a file that is not there is only named."""
    if isinstance(error, FileNotFoundError):
        return str(error.filename)
    if error.filename is None:
        return str(error.strerror)
    return f"{error.filename}: {error.strerror}"
