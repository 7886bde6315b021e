"""Every page: links lead somewhere, code and files that it names exist, lines are short."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / folder / "README.md" for folder in ("tests", "benchmarks", "examples")),
    ]
)
WIDTH = 120
# where a path on a page may begin
BASES = [ROOT, ROOT / "src/rondel", ROOT / "src", ROOT / "tests", ROOT / "tests/execution"]

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]*)(#[^)]*)?\)")
_CODE = re.compile(r"`(rondel(?:\.\w+)+):(\w+(?:\.\w+)*)`")
_FILE = re.compile(r"`([\w./-]+\.(?:py|md|toml|yml|yaml))(?:::\w+)?`")

of_each_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(ROOT).with_suffix(""))
)


def prose(page):
    """A page without its fenced blocks."""
    return _FENCED.sub("", page.read_text())


@of_each_page
def test_links_lead_somewhere(page):
    dead = []
    for target, anchor in _LINK.findall(prose(page)):
        if target.startswith("http"):
            continue
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor[1:] not in anchors(path)):
            dead.append(target + anchor)
    assert dead == []


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@of_each_page
def test_code_that_is_named_exists(page):
    named = _CODE.findall(page.read_text())
    assert [f"{module}:{name}" for module, name in named if not is_code(module, name)] == []


def is_code(module, name):
    try:
        value = import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError):
        return False
    return True


@of_each_page
def test_files_that_are_named_exist(page):
    saved = re.findall(r"^# file: (\S+)", page.read_text(), re.MULTILINE)
    made_up = {path for path in _FILE.findall(prose(page)) if re.search("NAME|LIBRARY", path)}
    named = [path for path in _FILE.findall(prose(page)) if path not in {*saved, *made_up}]
    bases = [page.parent, *BASES]
    assert [path for path in named if not any((base / path).exists() for base in bases)] == []


@of_each_page
def test_lines_are_short(page):
    """But for rows of tables, which can't be broken, and what programs print."""
    kept = re.sub(r"^```output$.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in kept.splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > WIDTH] == []


def test_the_glossary_names_where_each_word_is_defined():
    page = (DOCS / "development/glossary.md").read_text()
    entries = re.split(r"^- ", page, flags=re.MULTILINE)[1:]
    assert len(entries) > 20
    assert [entry.splitlines()[0] for entry in entries if not _CODE.search(entry)] == []


def test_decisions_are_numbered_and_listed():
    pages = sorted(DOCS.glob("decisions/0*.md"))
    index = (DOCS / "decisions/index.md").read_text()
    listed = re.findall(r"\]\((0[\w-]+\.md)\) \| (.*) \|", index)
    assert [name for name, _ in listed] == [page.name for page in pages]
    for number, (page, (_, title)) in enumerate(zip(pages, listed, strict=True), 1):
        text = page.read_text()
        assert page.name.startswith(f"{number:04}-")
        assert text.startswith(f"# {number}. {title}\n")
        parts = re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)
        assert parts == ["Context", "Decision", "Consequences"], page.name
