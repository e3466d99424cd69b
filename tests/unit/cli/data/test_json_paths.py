"""Paths into JSON, and what has to be there."""

from __future__ import annotations

import pytest

from barnabas.cli.data.json_paths import PathError, parse_condition, parse_path, values_at

ORDER = {
    "id": 7,
    "total": 99.5,
    "paid": True,
    "note": None,
    "at": "2026-01-31",
    "customer": {"name": "alice", "city": "Praha"},
    "items": [{"name": "apple", "count": 3}, {"name": "pear", "count": 1}],
    "odd name": {"a.b": "c"},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".id", [7]),
        ("$.customer.name", ["alice"]),
        ("customer.name", ["alice"]),
        ("items[0].name", ["apple"]),
        ("items[-1].name", ["pear"]),
        ("items[*].count", [3, 1]),
        ("customer.*", ["alice", "Praha"]),
        ('["odd name"]["a.b"]', ["c"]),
        (".note", [None]),
        (".absent.deeper", []),
        ("items[9]", []),
        ("id.name", []),
    ],
)
def test_a_path_leads_to_what_is_there(path: str, found: list[object]) -> None:
    assert list(values_at(ORDER, parse_path(path))) == found


@pytest.mark.parametrize(
    "condition",
    [
        ".id",
        ".note",
        ".id=7",
        "id = 7.0",
        "customer.name=alice",
        "customer.name!=bob",
        "paid=true",
        "note=null",
        "total>99",
        "total>=99.5",
        "total<1e3",
        "at>=2026-01-30",
        "customer.city~^Pra",
        "items[*].name=pear",
        "items[*].count>2",
    ],
)
def test_a_condition_holds(condition: str) -> None:
    assert parse_condition(condition).is_met_by(ORDER)


@pytest.mark.parametrize(
    "condition",
    [".absent", "id=8", "customer.name>5", "total>a", "paid>0", "customer.city~ha$x", "items[*].count>3", "at<2026"],
)
def test_a_condition_does_not_hold(condition: str) -> None:
    assert not parse_condition(condition).is_met_by(ORDER)


@pytest.mark.parametrize("text", ["", "=5", "a b", "items[x]", "a~(", "a.", "[]"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(PathError):
        parse_condition(text)
