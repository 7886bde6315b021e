"""What the documentation shows is true: its snippets run, its commands work, its output is so.

A page is run from top to bottom in one module and one folder. Three conventions: a snippet that
begins with `# file: name.py` is saved under that name, to be imported by later ones; a block of
`output` is what the snippet before it prints; of shell blocks the `rondel` commands are run.
"""

import importlib
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from marks import few_of
from rondel.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OWN_ALGORITHM = ROOT / "docs" / "write-your-own-algorithm.md"

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def run_page(tmp_path, monkeypatch, capsys):
    """Run all that a page shows; returns the module that its snippets ran in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def run(page):
        module = ModuleType(page.stem.replace("-", "_").lower())
        monkeypatch.setitem(sys.modules, module.__name__, module)
        printed = ""
        for line, kind, text in blocks(page):
            if kind == "output":
                assert printed.rstrip() == text.rstrip(), f"output at {page.name}:{line}"
            elif kind == "python":
                capsys.readouterr()
                run_python(text, module, page, line)
                printed = capsys.readouterr().out
            elif kind == "sh":
                run_shell(text)
        return module

    saved = [block.split()[2] for page in PAGES for _, _, block in blocks(page) if is_file(block)]
    yield run
    for name in saved:
        sys.modules.pop(Path(name).stem, None)


def blocks(page):
    """(line, kind, text) of each fenced block of a page."""
    whole = page.read_text()
    for match in _BLOCK.finditer(whole):
        yield whole.count("\n", 0, match.start(2)) + 1, match[1], match[2]


def is_file(text):
    return text.startswith("# file: ")


def run_python(text, module, page, line):
    if is_file(text):
        Path(text.split()[2]).write_text(text)
        importlib.invalidate_caches()
        return
    # empty lines in front, so that a traceback shows the line in the page
    code = compile("\n" * (line - 1) + text, str(page), "exec")
    exec(code, module.__dict__)


def run_shell(text):
    for line in text.splitlines():
        command, *arguments = shlex.split(line.removeprefix("PYTHONPATH=. "), comments=True) or [""]
        if command == "rondel":
            run_command(arguments)


def run_command(arguments):
    status = 0
    try:
        main.main(arguments)
    except SystemExit as end:
        status = end.code
    assert status in (0, None), f"rondel {shlex.join(arguments)} ended with {status}"


QUICK = [page for page in PAGES if page.stem in ("README", "getting-started", "distribution")]


@pytest.mark.parametrize(
    "page",
    few_of([page for page in PAGES if page != OWN_ALGORITHM], QUICK),
    ids=lambda page: page.stem,
)
def test_what_a_page_shows_runs(page, run_page):
    run_page(page)


@pytest.mark.long
def test_the_algorithm_that_a_page_writes_learns(run_page):
    shown = run_page(OWN_ALGORITHM)
    assert shown.solved.setup.env_id == "probe:both"
    assert shown.solved.evaluate(episodes=50).mean == 1.0
    assert shown.run.setup.env_id == "jax:CartPole-v1"
    assert shown.run.return_mean > 150
