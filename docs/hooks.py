"""What the site needs beside its pages: mkdocs calls these functions."""

import re

_CELL = re.compile(r"<td>.*?</td>", re.DOTALL)


def on_page_content(html: str, **_: object) -> str:
    """In a table `|` is written as `\\|`, which Python-Markdown shows as it stands in code."""
    return _CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)
