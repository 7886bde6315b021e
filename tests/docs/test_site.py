"""The documentation as a site: whole, built without a warning, and nothing of it from elsewhere."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rondel
from rondel.algorithms import catalogue

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_LINK = re.compile(r"\]\(([^)#]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of a site that was built for this test."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def script(path):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation_once():
    _, nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")
    assert sorted(re.findall(r"[\w/-]+\.md", nav)) == sorted(
        str(page.relative_to(DOCS)) for page in PAGES
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_links_to_what_is_part_of_the_site(page):
    for target in _LINK.findall(page.read_text()):
        if not target.startswith("http"):
            there = (page.parent / target).resolve()
            assert there.is_file(), f"{page.name} links to {target}"
            assert there.is_relative_to(DOCS), f"{page.name} links to {target}, outside of docs/"


def test_every_algorithm_has_a_page():
    pages = {page.stem for page in (DOCS / "algorithms").glob("*.md")}
    assert pages == {*catalogue.TABLE, "index"}


def test_the_readme_counts_the_algorithms():
    (count,) = re.findall(
        r"\[(\d+)\]\(docs/algorithms/index.md\)", (ROOT / "README.md").read_text()
    )
    assert int(count) == len(catalogue.TABLE)


def test_the_table_of_algorithms_is_what_they_say():
    table = script(DOCS / "algorithms" / "table.py")
    fresh = table.page() == table.PAGE.read_text()
    assert fresh, "the table is old: python docs/algorithms/table.py writes it anew"


@pytest.mark.parametrize("page", sorted((DOCS / "algorithms").glob("*.md")), ids=lambda p: p.stem)
def test_figures_of_algorithms_are_those_of_the_results(page):
    table = script(DOCS / "algorithms" / "table.py")
    fresh = table.measured(page.read_text()) == page.read_text()
    assert fresh, "figures are old: python docs/algorithms/table.py writes them anew"


def test_algorithms_with_results_show_them():
    """Each row of results.md stands on the page of its algorithm, but for those about lag."""
    learning = script(ROOT / "benchmarks" / "learning" / "run.py")
    for name, row in learning.ROWS.items():
        about_lag = name.startswith(("vtrace", "uncorrected"))
        if learning.rows_of(row.command) and not about_lag:
            page = (DOCS / "algorithms" / f"{row.algorithm}.md").read_text()
            assert re.search(rf"figures:.* {name}\b", page), f"{row.algorithm}.md lacks {name}"


def test_the_reference_has_every_public_name():
    shown = re.findall(r"^::: rondel\.(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(shown) == rondel.__all__


def test_pictures_are_shown_and_small():
    shown = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in _LINK.findall(page.read_text())
        if target.endswith((".png", ".svg"))
    }
    pictures = {path for path in (DOCS / "pictures").iterdir() if path.suffix in (".png", ".svg")}
    assert pictures == shown
    assert all(picture.stat().st_size < 100_000 for picture in pictures)


@pytest.mark.long
def test_pictures_are_made_from_real_runs(tmp_path):
    make = script(DOCS / "pictures" / "make.py")
    docs = tmp_path / "docs"
    (docs / "pictures").mkdir(parents=True)
    pages = [DOCS / "comparing-runs.md", DOCS / "profiling.md"]
    for page in pages:
        shutil.copy(page, docs)
    make.make(list(make.PARTS), docs, make.Scale(5_000, 8_000, seeds=2, host_seeds=1))
    made = {picture.name for picture in (docs / "pictures").iterdir()}
    assert made == {picture.name for picture in (DOCS / "pictures").glob("*.[ps][nv]g")}
    panel = (docs / "pictures" / "panel.svg").read_text()
    assert "learner" in panel
    assert "font-face" not in panel  # nothing is fetched from elsewhere
    for page in pages:
        new = (docs / page.name).read_text()
        assert new != page.read_text()  # other runs, other figures
        assert new.splitlines()[:5] == page.read_text().splitlines()[:5]
        assert "<!-- end of" in new


@pytest.mark.long
def test_the_site_is_built_without_a_warning(site):
    built = {str(path.relative_to(site).with_suffix(".md")) for path in site.rglob("*.html")}
    assert built == {*(str(page.relative_to(DOCS)) for page in PAGES), "404.md"}
    assert not list(site.rglob("*.py"))


@pytest.mark.long
def test_the_site_fetches_nothing_from_elsewhere(site):
    fetched = re.compile(r"<(?:script|img|iframe|source)[^>]*src=.?http|<link[^>]*href=.?http")
    styles = re.compile(r"url\(.?http|@import")
    for page in site.rglob("*.html"):
        assert not fetched.search(page.read_text()), page.name
    for sheet in site.rglob("*.css"):
        assert not styles.search(sheet.read_text()), sheet.name


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_table_is_shown_as_one(page, site):
    html = (site / page.relative_to(DOCS)).with_suffix(".html").read_text()
    tables = re.findall(r"<table>.*?</table>", html, re.DOTALL)
    assert len(tables) == len(re.findall(r"^\|-", page.read_text(), re.MULTILINE))
    assert "\\|" not in "".join(tables)


@pytest.mark.long
def test_the_reference_shows_signatures(site):
    page = (site / "api.html").read_text()
    for name in rondel.__all__:
        assert f'id="rondel.{name}"' in page
    assert "eval_episodes" in page
