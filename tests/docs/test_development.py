"""Pages for contributors name code that exists: each `rondel.module:name` on them is imported."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEVELOPMENT = sorted((ROOT / "docs" / "development").rglob("*.md"))
_PLACE = re.compile(r"`(rondel(?:\.\w+)*):(\w+(?:\.\w+)*)`")


@pytest.mark.parametrize("page", DEVELOPMENT, ids=lambda page: page.stem)
def test_code_that_a_page_names_exists(page):
    missing = [
        f"{module}:{name}"
        for module, name in _PLACE.findall(page.read_text())
        if not there(module, name)
    ]
    assert not missing, f"{page.name} names code that is not there: {', '.join(missing)}"


def there(module, name):
    try:
        value = import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError):
        return False
    return True


def test_the_glossary_names_where_each_word_is_defined():
    entries = re.split(
        r"^- ", (ROOT / "docs/development/glossary.md").read_text(), flags=re.MULTILINE
    )[1:]
    assert len(entries) > 20
    assert [entry.splitlines()[0] for entry in entries if not _PLACE.search(entry)] == []
