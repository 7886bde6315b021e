"""config.json of a stranger's run: it is compared and drawn, or a sentence says why not."""

import json

from hypothesis import strategies as st

import rondel
from fuzz import QUICK_AND_LONG, anything, holds, mutated, sentence

GOOD = {
    "algorithm": "ppo",
    "env": "jax:CartPole-v1",
    "seed": 0,
    "config": {"clip": 0.2},
    "options": {"plan": "all", "lag": 0, "free": False, "on": "inline", "lanes": 8},
}
ROWS = "".join(
    json.dumps({"steps": 10 * i, "seconds": 0.5 * i, "return_mean": i}) + "\n" for i in (1, 2, 3)
)
inner = st.dictionaries(
    st.sampled_from([*GOOD, *GOOD["options"], "clip"]) | st.text(max_size=4), anything, max_size=4
)
texts = st.sampled_from(["ppo", "jax:", "$x^$", "a|b", "?", "\ud800", "\n", "\x00"])
abouts = st.builds(
    lambda changed, gone: {k: v for k, v in (GOOD | changed).items() if k not in gone},
    st.dictionaries(st.sampled_from([*GOOD]), inner | texts | anything, max_size=3),
    st.sets(st.sampled_from([*GOOD]), max_size=1),
)
files = st.one_of(
    st.binary(max_size=80),
    mutated(json.dumps(GOOD).encode()),
    anything.map(lambda x: json.dumps(x).encode()),
    abouts.map(lambda about: json.dumps(about).encode()),
    st.sampled_from(
        [
            b"[" * 100_000,
            b'{"seed": ' + b"9" * 5_000 + b"}",
            b" " * (2 << 20),
            json.dumps(GOOD | {"config": {"env": None}}).encode(),
        ]
    ),
)


def folder_of(path, config):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_bytes(config)
    (path / "metrics.jsonl").write_text(ROWS)
    return path


@QUICK_AND_LONG
def test_any_description_is_compared(effort, tmp_path):
    ours = folder_of(tmp_path / "ours", json.dumps(GOOD).encode())

    def one(config):
        theirs = folder_of(tmp_path / "theirs", config)
        sentence(lambda: str(rondel.compare([ours, theirs])).encode())

    holds(one, files, 100 * effort)


@QUICK_AND_LONG
def test_any_description_is_drawn(effort, tmp_path):
    ours = folder_of(tmp_path / "ours", json.dumps(GOOD).encode())

    def one(config):
        theirs = folder_of(tmp_path / "theirs", config)
        sentence(rondel.plot, [ours, theirs], tmp_path / "all.png")

    holds(one, files, 4 * effort)
