"""The box of the panel, for a run or for several seeds, as something that rich renders."""

from __future__ import annotations

import math
from itertools import zip_longest

from rich.box import ROUNDED
from rich.cells import set_cell_size
from rich.console import RenderableType
from rich.panel import Panel as Box
from rich.table import Table
from rich.text import Text

from rondel.formatting import duration, number, short_number
from rondel.run.display import utilisation
from rondel.run.display.round_record import RoundRecord

CURVE = 52  # columns of the return's curve
_BESIDE = 68  # columns that figures and metrics need beside each other
_LAG = "policy/lag"  # the metric for the age of the acting weights


def of_seeds(each: list[RoundRecord], width: int) -> RenderableType:
    """A row for each of several seeds."""
    table = Table.grid(padding=(0, 2))
    for heading in ("seed", "", "steps", "return", "length", "episodes", "steps/s", "left"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    table.add_row(*(Text(str(column.header), style="dim") for column in table.columns))
    for one in each:
        table.add_row(
            str(one.seed),
            utilisation.bar(one.part, 10, "cyan"),
            short_number(one.steps),
            Text(number(one.return_mean), style="bold"),
            number(one.length_mean),
            short_number(one.episodes),
            number(one.steps_per_second),
            duration(one.seconds_left) if one.seconds_left else "",
        )
    return _box(table, each[0], width)


def of_run(record: RoundRecord, curve: list[float], width: int) -> RenderableType:
    """The box: progress, figures beside metrics, then the ring with how busy its pieces are.

    All is one text, which draws much faster than nested tables.
    """
    inside = width - 4
    clock = (
        f"{duration(record.seconds_left)} left" if record.seconds_left else duration(record.seconds)
    )
    long = max(10, min(CURVE, inside - 20))
    far = utilisation.bar(record.part, long, "cyan")
    lines = [
        Text.assemble(far, f"  {record.part:4.0%}  ", (clock, "dim")),
        Text(sparkline(_fewer(curve, long)), "cyan"),
        Text(),
        *_figures(record, inside),
    ]
    if seen := record.utilisation:
        lines += [Text(), *utilisation.draw(seen, record.metrics.get(_LAG), inside)]
    return _box(Text("\n", no_wrap=True, overflow="ellipsis").join(lines), record, width)


def _box(content: RenderableType, record: RoundRecord, width: int) -> Box:
    title = Text.assemble((record.goal.algorithm, "bold"), f" on {record.goal.env}")
    return Box(
        content, box=ROUNDED, title=title, title_align="left", border_style="dim", width=width
    )


def _figures(record: RoundRecord, width: int) -> list[Text]:
    """Figures at the left, metrics at the right; below each other where the box is narrow."""
    goal = record.goal
    left = [
        ("return", number(record.return_mean)),
        ("length", number(record.length_mean)),
        ("episodes", f"{record.episodes:,}"),
        ("steps", f"{record.steps:,} of {short_number(goal.total_steps)}"),
        ("steps/s", number(record.steps_per_second)),
    ]
    if goal.until_return is not None:
        left[0] = ("return", f"{left[0][1]} until {number(goal.until_return)}")
    shown = record.metrics.items()
    right = [(name, number(x)) for name, x in shown if not (record.utilisation and _LAG in name)]
    # widths are fixed so that nothing moves while the numbers grow
    if width < _BESIDE:
        labels = min(24, 2 + max(len(label) for label, _ in (*left, *right)))
        return [_figure(*pair, labels, 20) for pair in (*left, *right)]
    beside = zip_longest(left, right, fillvalue=("", ""))
    return [
        _figure(label, text, 10, 24) + _figure(name, value, 26, -8)
        for (label, text), (name, value) in beside
    ]


def _figure(label: str, value: str, columns: int, more: int) -> Text:
    """A label in `columns` and its value in `more` columns, to the right if that is negative."""
    name = set_cell_size(
        label if len(label) <= columns - 2 else f"{label[: columns - 3]}…", columns
    )
    text = f"{value:{more}}" if more > 0 else f"{value:>{-more}}"
    return Text.assemble((name, "dim"), (text, "bold" if label == "return" else ""))


def _fewer(curve: list[float], columns: int) -> list[float]:
    """A curve in fewer columns, each with its last known value."""
    if not curve or columns >= len(curve):
        return curve
    fewer = [math.nan] * columns
    for i, value in enumerate(curve):
        if not math.isnan(value):
            fewer[i * columns // len(curve)] = value
    return fewer


def sparkline(values: list[float]) -> str:
    """A character for each value up to the last known one; NaN stays at the value before it."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return ""
    low, high = min(known), max(known)
    bars, text = "▁▂▃▄▅▆▇█", " "
    for value in values:
        if math.isnan(value):
            text += text[-1]
        else:
            text += bars[int((value - low) / (high - low or 1.0) * (len(bars) - 1))]
    end = max(i for i, value in enumerate(values) if not math.isnan(value))
    return text[1 : end + 2]
