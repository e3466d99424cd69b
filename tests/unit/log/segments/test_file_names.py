"""Names on disk are Kafka's."""

from __future__ import annotations

import pytest

from barnabas.log.segments.file_names import FolderName, marked_folder, offset_file, parse_folder, parse_offset_file


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", FolderName("orders", 0, "")),
        ("a-b.c_d-12", FolderName("a-b.c_d", 12, "")),
        ("__consumer_offsets-49", FolderName("__consumer_offsets", 49, "")),
        ("orders-3.0123456789abcdef0123456789abcdef-delete", FolderName("orders", 3, "-delete")),
        ("a-b-3.0123456789abcdef0123456789abcdef-future", FolderName("a-b", 3, "-future")),
        ("a.b-3.0123456789abcdef0123456789abcdef-stray", FolderName("a.b", 3, "-stray")),
        ("orders-delete", None),
        ("orders", None),
        ("orders-", None),
        ("-0", None),
        ("orders-x", None),
        ("orders--1", FolderName("orders-", 1, "")),
        ("lost+found", None),
    ],
)
def test_a_partitions_folder_is_known_by_its_name(name: str, expected: FolderName | None) -> None:
    assert parse_folder(name) == expected


def test_a_folder_on_its_way_out_fits_any_file_system_and_is_recognised() -> None:
    unique = "0123456789abcdef" * 2
    assert marked_folder("orders", 3, unique, "-delete") == f"orders-3.{unique}-delete"
    longest = marked_folder("t" * 249, 12_345, unique, "-delete")
    assert len(longest) == 255
    parsed = parse_folder(longest)
    assert parsed is not None
    assert (parsed.partition, parsed.mark) == (12_345, "-delete")


def test_segment_files_carry_their_base_offset() -> None:
    assert offset_file("/d/t-0", 4711, ".timeindex") == "/d/t-0/00000000000000004711.timeindex"
    assert parse_offset_file("00000000000000004711.timeindex") == (4711, ".timeindex")
    for other in ("4711.log", "00000000000000004711.log.deleted", "00000000000000004711-0000000003.checkpoint", "x"):
        assert parse_offset_file(other) is None
