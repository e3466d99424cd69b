"""From the file of a run to the pages and pictures that show it."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from bench import drawing, publishing, report, stored
from bench.__main__ import main
from bench.drawing import Panel, advantage
from bench.publishing import ROOT, published
from bench.results import Line, Verdict
from bench.stats import AtLeast, AtMost, Measure, Ratio
from bench.stored import StoredRun, StoredRunError

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = (
    Verdict(AtLeast(Measure.RATIO, 1.1), 2.0),
    Verdict(AtMost(Measure.CPU_RATIO, 0.9), 0.5),
    Verdict(AtMost(Measure.VALUE, 5), None),
)
RATE = Line("requests", "k requests/s", (4.0, 2.0), Ratio(2.0, 1.5, 2.5), (1.0, 2.0), Ratio(0.5, 0.4, 0.8), TARGETS)
TIME = Line("start", "s", (4.0, 2.0), Ratio(2.0, 1.6, 2.5), (None, None), None, ())
ALONE = Line("worker", "MB", (171.0, None), None, (None, None), None, ())


def run_of(*lines: Line, sides: tuple[str, ...] = ("Barnabas", "Kafka")) -> StoredRun:
    return StoredRun("brokers", "a title", "2026-11-17", {"processor": "one"}, sides, "notes", lines)


def texts(picture: Path) -> list[str]:
    return re.findall(r"<text [^>]*>([^<]*)</text>", picture.read_text())


def test_a_run_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    run = run_of(RATE, TIME, ALONE)
    stored.save(run, tmp_path / "run.json", samples={"requests": {}})
    assert stored.load(tmp_path / "run.json") == run


def test_a_file_that_is_no_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[]")
    for name in ("other.json", "nothing.json"):
        with pytest.raises(StoredRunError, match=rf"{name} is not the file of a run"):
            stored.load(tmp_path / name)


def test_more_of_a_rate_is_better_and_less_of_anything_else() -> None:
    assert advantage(RATE) == Ratio(2.0, 1.5, 2.5)
    assert advantage(TIME) == Ratio(0.5, 0.4, 0.625)
    assert advantage(ALONE) is None


def test_a_picture_names_each_row_with_its_factor_and_figures_and_is_the_same_each_time(tmp_path: Path) -> None:
    panel = Panel("a title", ("Barnabas", "Kafka"), [RATE, TIME, ALONE])
    drawing.draw([panel], tmp_path / "one.svg")
    drawing.draw([panel], tmp_path / "two.svg")
    drawn = texts(tmp_path / "one.svg")
    assert {"requests", "2.0×", "4 | 2 k requests/s", "start", "0.50×", "4 | 2 s"} <= set(drawn)
    assert "worker" not in drawn, "there is nothing to compare it with"
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_bars_have_the_colour_of_their_side_and_another_on_dark_pages(tmp_path: Path) -> None:
    def colours(line: Line) -> set[str]:
        drawing.draw([Panel("a title", ("Barnabas", "Kafka"), [line])], tmp_path / "drawn.svg")
        bars = re.findall(r'<g id="patch_\d+">\n    <path [^>]*clip-path[^>]*style="fill: (#\w+)', svg())
        return set(bars)

    def svg() -> str:
        return (tmp_path / "drawn.svg").read_text()

    assert colours(RATE) == {drawing.BETTER}
    assert colours(TIME) == {drawing.WORSE}
    for light, dark in drawing.DARK.items():
        assert f'[style*="fill: {light}"]{{fill:{dark}!important}}' in svg()


def test_without_anything_to_compare_there_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no row has a ratio"):
        drawing.draw([Panel("a title", ("Barnabas",), [ALONE])], tmp_path / "none.svg")


def test_pages_show_what_is_published() -> None:
    for path, text in publishing.pages(published(), ROOT).items():
        assert (ROOT / path).read_text() == text, "see `python -m bench publish`"


def test_pictures_show_what_is_published(tmp_path: Path) -> None:
    for path, panels in publishing.pictures(published()).items():
        drawing.draw(panels, tmp_path / "drawn.svg")
        assert texts(ROOT / path) == texts(tmp_path / "drawn.svg"), "see `python -m bench publish`"


def test_rows_of_the_summary_are_there() -> None:
    labels = {line.label for run in published().values() for line in run.lines}
    assert set(publishing.SUMMARY) <= labels


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all that shows figures, into which runs are published."""
    shutil.copytree(stored.PUBLISHED, tmp_path / "published")
    for page in (publishing.README, publishing.PAGE):
        (tmp_path / page).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    monkeypatch.setattr(publishing, "PUBLISHED", tmp_path / "published")
    monkeypatch.setattr(publishing, "ROOT", tmp_path)
    return tmp_path


def test_a_run_that_is_published_is_in_the_tables_and_pictures(tree: Path) -> None:
    run = published()["brokers"]
    newer = tuple(replace(line, medians=(12.5, 625.0)) for line in run.lines)
    stored.save(replace(run, lines=newer, measured_on="2027-02-03"), tree / "newer.json", samples={})
    assert main(["publish", str(tree / "newer.json")]) == 0
    page = (tree / publishing.PAGE).read_text()
    assert report.rows(replace(run, lines=newer)) in page
    assert "Measured on 2027-02-03." in page
    assert report.rows(published()["pipelines"]) in page
    assert "| Memory, idle | 12.5 MB | 625 MB |" in (tree / publishing.README).read_text()
    assert "12.5 | 625 MB" in texts(tree / publishing.PICTURE)


def test_the_first_run_of_its_kind_can_be_published(tree: Path) -> None:
    run = published()["clusters"]
    (tree / "published" / "clusters.json").unlink()
    stored.save(replace(run, measured_on="2027-02-03"), tree / "first.json", samples={})
    assert main(["publish", str(tree / "first.json")]) == 0
    assert published()["clusters"].measured_on == "2027-02-03"


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (run_of(RATE, sides=("Kafka A", "Kafka B")), "only these are published"),
        (run_of(RATE), "lacks rows that are published"),
    ],
)
def test_a_run_that_would_lose_figures_is_refused(
    run: StoredRun, said: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (tree / publishing.PAGE).read_text()
    stored.save(run, tree / "run.json")
    assert main(["publish", str(tree / "run.json")]) == 1
    assert said in capsys.readouterr().out
    assert (tree / publishing.PAGE).read_text() == before
