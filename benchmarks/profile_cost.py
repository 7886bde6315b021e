"""What it costs to know where the time goes.

    python benchmarks/profile_cost.py

How many marks the copies of a run make in a second, times what a mark takes here, is the part of
their time that goes into marking. To show it while it runs a copy says something once a second, the
driver looks at all of them every 3 seconds, and a terminal's panel is drawn twice a second.
"""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from rich.console import Console

import rondel
from rondel.execution.meter import Meter
from rondel.plan import parse
from rondel.run.display import Panel, Progress
from rondel.run.load import Load
from rondel.run.window import Window

RUNS = [  # algorithm, environment, plan, backend, steps
    ("ppo", "CartPole-v1", "all", "inline", 500_000),
    ("ppo", "gymnasium:CartPole-v1", "all", "inline", 60_000),
    ("ppo", "gymnasium:CartPole-v1", "actor*2 | learner", "processes", 60_000),
    ("ppo", "gymnasium:CartPole-v1", "env*2 | policy+learner", "processes", 40_000),
    ("dqn", "gymnasium:CartPole-v1", "all", "inline", 10_000),
    ("dqn", "CartPole-v1", "actor*2 | memory | gradient+update", "processes", 5_000),
]


def mark_seconds(times: int = 200_000) -> float:
    """What one mark takes."""
    meter = Meter()
    began = time.perf_counter()
    for _ in range(times):
        meter.mark("env", "simulator")
    return (time.perf_counter() - began) / times


def timed(what: Callable[[], Any], times: int) -> float:
    """Seconds of this process that it takes once."""
    what()
    began = time.process_time()
    for _ in range(times):
        what()
    return (time.process_time() - began) / times


def live_seconds() -> tuple[float, float, float]:
    """What it takes a copy to say something, the driver to look at three, a panel to be drawn."""
    meter, later = Meter(), Meter()
    for i in range(12):
        meter.mark(f"stage {i % 5}", f"kind {i}")
        later.mark(f"stage {i % 5}", f"kind {i}")
        later.mark(f"stage {i % 5}", f"kind {i}")
    before, now = meter.glance(), later.glance()
    ring = SimpleNamespace(
        plan=parse("actor*2 | learner"),
        task=SimpleNamespace(lanes=8, algorithm=SimpleNamespace(max_lag=0)),
        glances=lambda: [[now, now._replace(who="b")], [now._replace(who="c")]],
    )
    setup = SimpleNamespace(env_id="gymnasium:Ant-v5", options=SimpleNamespace(on="processes"))
    window: Any = Window(SimpleNamespace(ring=ring, setup=setup))  # type: ignore[arg-type]

    def look() -> Load:
        window._due, window._since = 0.0, dict.fromkeys((now.who, "b", "c"), before)
        return window.look()

    metrics = {f"metric {i}": 0.5 for i in range(6)}
    shown = Progress("ppo", "Ant", 5, 9, 1.0, 2.0, 3, 4.0, 5.0, metrics, load=look())
    terminal = io.StringIO()
    panel = Panel(terminal, every=0.0)
    panel._console = Console(file=terminal, force_terminal=True, width=80, height=24)
    panel.start([])
    said = timed(lambda: pickle.dumps(meter.glance()), 2_000)
    return said, timed(look, 1_000), timed(lambda: panel._show(shown), 200)


def main() -> None:
    each = mark_seconds()
    print(f"A mark takes {each * 1e6:.2f} microseconds.\n")
    said, looked, drawn = live_seconds()
    print(f"A copy's say {said * 1e6:.0f} microseconds, once a second: {said:.4%}.")
    print(f"A look {looked * 1e6:.0f} microseconds, every 3 seconds: {looked / 3:.4%}.")
    print(f"A drawing {drawn * 1e3:.1f} milliseconds, 2 a second: {2 * drawn:.2%}.\n", flush=True)
    print("| run | on | marks a second of the busiest copy | part of its time |")
    print("|---|---|---|---|")
    for algorithm, env, plan, on, steps in RUNS:
        more = {} if plan == "all" else {"block": 4}
        with rondel.start(algorithm, env, steps=steps, plan=plan, on=on, **more) as run:
            for _ in run.rounds():
                pass
            seen = run.profile()
        marks = max(
            sum(share.times for share in piece.shares) / piece.copies for piece in seen.pieces
        )
        rate = marks / seen.seconds
        name = f"{algorithm} {env} `{plan}`".replace("|", "\\|")
        print(f"| {name} | {on} | {rate:,.0f} | {rate * each:.3%} |", flush=True)


if __name__ == "__main__":
    main()
