"""The tables of these pages: what algorithms say of themselves, and what was measured.

    python docs/algorithms/table.py    writes them anew

The figures are rows of benchmarks/learning/results.md. A page says which, by their names in
benchmarks/learning/run.py, between "figures:" and the end of that comment.
"""

import re
import runpy
from pathlib import Path

from rondel.algorithms import catalogue

HERE = Path(__file__).parent
PAGE = HERE / "index.md"
LEARNING = HERE.parents[1] / "benchmarks" / "learning" / "run.py"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"
FIGURES = re.compile(r"(<!-- figures: (.*) -->\n)(?s:.*?)(<!-- end of figures -->)")


def table() -> str:
    """A line for each, by family."""
    lines = ["| name | family | actions | remembers | lag | plan | paper |", "|---|" + "---|" * 6]
    found = {name: catalogue.find(name) for name in catalogue.TABLE}
    families = list(dict.fromkeys(one.card.family for one in found.values()))
    by_family = sorted(found, key=lambda name: families.index(found[name].card.family))
    return "\n".join([*lines, *(_line(found[name]) for name in by_family)]) + "\n"


def page() -> str:
    """The whole page, with the table in its place."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


def measured(text: str) -> str:
    """A page's text with its figures as results.md has them."""
    learning = runpy.run_path(str(LEARNING))

    def figures(match: re.Match[str]) -> str:
        lines = ["| command | seeds | goal | at goal | return by seed |", "|---|" + "---|" * 4]
        for name in match[2].split():
            rows = learning["rows_of"](learning["ROWS"][name].command)
            lines += [f"| {' | '.join(cells[:5])} |" for cells in rows]
        return match[1] + "\n".join(lines) + "\n" + match[3]

    return FIGURES.sub(figures, text)


def _line(found: catalogue.Entry) -> str:
    card = found.card
    cells = (
        f"[`{found.name}`]({found.name}.md)",
        card.family,
        card.actions,
        "yes" if found.recurrent else "",
        "any" if card.max_lag is None else f"{card.max_lag}",
        f"`{card.plan}`".replace("|", "\\|"),
        card.paper,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
    for path in HERE.glob("*.md"):
        path.write_text(measured(path.read_text()))
