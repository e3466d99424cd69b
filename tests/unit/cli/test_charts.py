"""Curves in characters."""

from __future__ import annotations

from barnabas.cli.bench.charts import chart


def drawn(values: list[float], width: int = 4, height: int = 2) -> list[str]:
    return chart(values, width=width, height=height, label="{:.0f}".format)


def test_the_highest_value_reaches_the_top() -> None:
    assert drawn([0, 4, 8, 16]) == ["16 ┤   █", " 0 ┤ ▄██"]


def test_few_values_are_wide_and_many_are_put_together() -> None:
    assert drawn([8, 16]) == ["16 ┤  ██", " 0 ┤████"]
    assert drawn([0, 0, 4, 4, 8, 8, 16, 16]) == drawn([0, 4, 8, 16])


def test_nothing_is_drawn_flat() -> None:
    assert drawn([]) == ["0 ┤", "0 ┤"]
    assert drawn([0, 0]) == ["0 ┤", "0 ┤"]
