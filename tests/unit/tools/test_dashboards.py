"""The dashboards that are in the tree."""

from __future__ import annotations

import pytest
from tools.make_dashboards import DASHBOARDS, WIDTH, Dashboard, as_json, file_of, text_of


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_a_dashboard_is_what_its_description_makes_of_it(dashboard: Dashboard) -> None:
    assert file_of(dashboard).read_text() == text_of(dashboard), "python -m tools.make_dashboards writes it"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_the_panels_of_a_dashboard_have_a_place_of_their_own(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in as_json(dashboard)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= WIDTH
        taken |= cells
