"""Every example runs as a program, prints what its docstring announces and is listed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from marks import few_of

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTED = {  # with how many steps, and what it must print then
    "train": (2_000, "action for a pole that falls right: "),
    "own_jax_env": (2_000, "mean return of 50 greedy episodes: -"),
    "own_gymnasium_env": (2_000, "mean return of 20 greedy episodes: "),
    "own_algorithm": (20_000, "probe:both: 1.00 (1 is the best)"),
    "own_network": (2_000, "network own:residual"),
    "hooks": (4_000, "round 0: 37 episodes ended"),
    "seeds_and_compare": (2_000, "Too few seeds to name a winner"),
    "ray_cluster": (2_000, "equal parameters: True"),
}


@pytest.fixture
def run_example(tmp_path):
    """Run an example in an empty folder -> what it printed."""

    def run(name, steps):
        command = [sys.executable, str(EXAMPLES / f"{name}.py"), str(steps)]
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("name", few_of(PRINTED, ["train", "hooks", "own_gymnasium_env"]))
def test_an_example_runs(name, run_example):
    steps, line = PRINTED[name]
    assert line in run_example(name, steps)


def test_two_plans_of_the_own_algorithm_give_the_same_return(run_example):
    lines = run_example("own_algorithm", 2_000).splitlines()
    one, other = (line.partition("mean return ")[2] for line in lines if "CartPole" in line)
    assert one == other


def test_every_example_is_listed_and_run():
    files = {path.stem for path in EXAMPLES.glob("*.py")}
    assert files == set(PRINTED)
    assert files == set(
        re.findall(r"^\| \[(\w+)\.py\]", (EXAMPLES / "README.md").read_text(), re.M)
    )


def test_every_example_says_how_to_run_it():
    for path in EXAMPLES.glob("*.py"):
        assert f"python examples/{path.name} [STEPS]" in path.read_text()
