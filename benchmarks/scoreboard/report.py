"""The scoreboard's figures as JSON, table and chart.

Each row has a file of its own, with the versions and the machine, so that one row can be measured
again without the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import venvs
from noise import Turn
from rows import ROWS, Row

RESULTS = Path(__file__).parents[1] / "results"
README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- scoreboard: by run.py --report -->\n", "<!-- end of scoreboard -->\n"
SHORT = (  # the rows of the README's table
    "fused", "fused DQN", "host", "DQN", "SAC", "cheetah", "Pong 4ep", "replay draw",
    "solve, warm", "memory",
)  # fmt: skip
HEAD = """# Scoreboard

`make bench` measures the quick rows, `make bench-full` all of them, and
`python benchmarks/scoreboard/run.py ROW` one. Ours and theirs alternate, each in a process of its
own; figures are medians, with the least and the greatest in brackets. The ratio comes first, since
no absolute time is a fact on a shared machine: above 1 Rondel is ahead, below 1 the peer is. "Busy"
is how many times slower a fixed piece of work was around the figures, at worst, than at its best.
"Apart" is how many nanoseconds it took until one core saw what another wrote, where it was
measured: on a virtual machine it changes from minute to minute, and with it what several threads
are good for (docs/performance.md). In rows marked * each side uses its own settings; the others are
the same work, over environments of the same rules: ours are EnvPool's for Pong and HalfCheetah-v5,
the peers' ale-py's and, for Sample Factory, HalfCheetah-v4.

![ratios as bars](scoreboard.png)

"""


def venv_of(peer: str) -> str:
    """The environment of a peer's script: `sbx_dqn` and `sb3_dqn` share one; flashbax is here."""
    library = peer.partition("_")[0]
    return {"sbx": "sb3", "flashbax": venvs.HERE}.get(library, library)


def _path(row: Row) -> Path:
    return RESULTS / f"{row.name.replace(',', '').replace(' ', '-').lower()}.json"


def keep(row: Row, turns: dict[str, list[Turn]]) -> None:
    """Write the figures of a row."""
    record = {
        "row": row.name,
        "unit": row.unit,
        "figures": {who: [turn.figure for turn in each] for who, each in turns.items()},
        "busy": {who: [round(turn.busy, 2) for turn in each] for who, each in turns.items()},
        "apart": [round(turn.apart) for each in turns.values() for turn in each if turn.apart],
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "versions": {
            "rondel": version("rondel"), "jax": version("jax"), "python": sys.version.split()[0],
            **{name: venvs.versions(name) for name in sorted({venv_of(p) for p in row.peers})},
        },
    }  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    _put(_path(row), json.dumps(record, indent=1) + "\n")


def _put(path: Path, text: str) -> None:
    """Write a file atomically."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


def machine() -> str:
    cores = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    with contextlib.suppress(OSError):
        said = Path("/proc/cpuinfo").read_text().splitlines()
        models = [line.partition(":")[2].strip() for line in said if line.startswith("model name")]
        return f"{models[0]}, {cores}" if models else cores
    return cores


def load(row: Row) -> dict[str, Any] | None:
    return json.loads(_path(row).read_text()) if _path(row).exists() else None


def ratios(row: Row, record: dict[str, Any]) -> dict[str, float]:
    """How many times better than each peer we are, by medians."""
    middle = {who: statistics.median(turns) for who, turns in record["figures"].items()}
    ours = middle.pop("rondel")
    return {who: row.times_better(ours, theirs) for who, theirs in middle.items()}


def _figure(turns: list[float]) -> str:
    middle, low, high = map(_written, (statistics.median(turns), min(turns), max(turns)))
    return middle if len(turns) == 1 else f"{middle} ({low} to {high})"


def _written(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"


def _named(peer: str) -> str:
    names = {"sb3": "SB3", "torch": "SB3", "sbx": "SBX", "sf": "Sample Factory", "rllib": "RLlib"}
    library = peer.partition("_")[0].partition("-")[0]
    return names.get(library, library)


def line(row: Row) -> str:
    """A row of the table."""
    record = load(row)
    star = "" if row.same_work else " *"
    if record is None:
        return f"| {row.name}{star} | {row.what} | not measured | | | | | |"
    by_peer = ratios(row, record)
    goal = "" if row.goal is None else f"{row.goal:g} x {_named(row.peers[0])}"
    ratio = "<br>".join(f"{times:.2f} x {_named(peer)}" for peer, times in by_peer.items())
    theirs = "<br>".join(f"{_named(p)} {_figure(record['figures'][p])}" for p in by_peer)
    busy = max(max(turns) for turns in record["busy"].values())
    ours = _figure(record["figures"]["rondel"])
    apart = _figure(record["apart"]) if record.get("apart") else ""
    cells = f"{row.name}{star}", f"{row.what}, {row.unit}", ratio, goal, ours, theirs
    return f"| {' | '.join(cells)} | {busy:.2f} | {apart} |"


def short() -> str:
    """The README's table: the ratios of some rows."""
    lines = ["| row | workload | times the peer |", "|---|---|---|"]
    for row in ROWS:
        if row.name in SHORT and (record := load(row)) is not None:
            found = ", ".join(f"{t:.2f} x {_named(p)}" for p, t in ratios(row, record).items())
            lines.append(f"| {row.name} | {row.what} | {found} |")
    return "\n".join([*lines, ""])


def with_short(text: str) -> str:
    """The README with that table between its marks."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + short() + END + rest.partition(END)[2]


def write() -> None:
    """Write the tables and the chart of all rows that were measured."""
    titles = "row", "workload", "ratio", "goal", "Rondel", "peers", "busy", "apart"
    head = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    _put(RESULTS / "scoreboard.md", HEAD + "\n".join([*head, *map(line, ROWS), ""]))
    _put(README, with_short(README.read_text()))
    chart(RESULTS / "scoreboard.png")


def chart(path: Path) -> None:
    """Ratios as bars on a logarithmic axis: to the right of 1 we are ahead."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    bars = [
        (f"{row.name}, {_named(peer)}", times)
        for row in reversed(ROWS)
        if (record := load(row)) is not None
        for peer, times in reversed(ratios(row, record).items())
    ]
    if not bars:
        return
    names, values = zip(*bars, strict=True)
    figure, axes = plt.subplots(figsize=(7, 0.28 * len(bars) + 1))
    colours = ["#2a6f97" if value >= 1 else "#bc4749" for value in values]
    axes.barh(names, [value - 1 for value in values], left=1, color=colours)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    ticks = [
        t for t in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100) if min(values) / 2 < t < max(values) * 2
    ]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_xlabel("times the peer: Rondel is ahead to the right of 1, behind to the left")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
