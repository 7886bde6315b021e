"""The table of algorithms, from what they say of themselves.

python docs/algorithms/table.py    writes it into docs/algorithms/index.md
"""

from pathlib import Path

from rondel.algorithms import catalogue

PAGE = Path(__file__).parent / "index.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"


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
