"""The table of algorithms, from what they say of themselves.

python docs/algorithms/table.py    writes it into docs/algorithms/index.md
"""

from pathlib import Path

from rondel.algorithms import catalogue

PAGE = Path(__file__).parent / "index.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"


def table() -> str:
    """A line for each, by family."""
    lines = ["| name | family | actions | remembers | lag | home | paper |", "|---|" + "---|" * 6]
    families = dict.fromkeys(catalogue.find(name).FAMILY for name in catalogue.TABLE)
    for family in families:
        lines += [_line(name) for name in catalogue.TABLE if _family(name) == family]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page, with the table in its place."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


def _family(name: str) -> str:
    return str(catalogue.find(name).FAMILY)


def _line(name: str) -> str:
    about = catalogue.find(name)
    lag = "any" if about.MAX_LAG is None else f"{about.MAX_LAG}"
    home = about.HOME.replace("|", "\\|")
    cells = (
        f"[`{name}`]({name}.md)",
        about.FAMILY,
        about.ACTIONS,
        "yes" if about.RECURRENT else "",
        lag,
        f"`{home}`",
        about.PAPER,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
