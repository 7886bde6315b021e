"""A checkpoint that a stranger wrote, checksums and all: it loads, or there is a sentence.

Nothing that it names is imported, and nothing is made by the sizes that it claims.
"""

import json
import shutil
import struct
import sys

import pytest
from hypothesis import strategies as st

import rondel
from fuzz import QUICK_AND_LONG, anything, holds, mutated, sentence
from rondel import RondelError
from rondel.run.storage import checkpoint, locate, run_folder
from rondel.run.storage.checkpoint import CheckpointError
from rondel.run.storage.locate import META, STATE
from run import small_checkpoints
from run.small import PPO
from run.small_checkpoints import save_small, small


def seal(path, meta):
    """Write a meta.json that its checksum vouches for."""
    sums = {
        file.name: checkpoint._sum(file) for file in path.iterdir() if file.suffix == ".safetensors"
    }
    body = json.dumps({"format": 1, "meta": meta, "files": sums}).encode().removesuffix(b"}")
    (path / META).write_bytes(body + checkpoint._seal(body))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A checkpoint of a real run, and what its meta says."""
    folder = tmp_path_factory.mktemp("real")
    rondel.train("ppo", "CartPole-v1", steps=100, out=folder, eval_episodes=0, **PPO)
    path = locate.find_checkpoint(folder)
    return path, checkpoint.read_meta(path)


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module that must not be imported."""
    (tmp_path / "trap.py").write_text("import os\nos.environ['RONDEL_TRAP'] = 'shut'\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    assert "trap" not in sys.modules


NAMES = ["trap:make", "own:trap", "gymnasium:trap:Env-v0", "trap", "gru", "ray", "nature", "impala"]
IDS = [
    'gymnasium:GymV26Environment-v0?env_id="trap\\u003aEnv-v0"',
    "gymnasium:CartPole-v1?x=1",
    "gymnasium:CartPole-v1?id=1",
    "jax:CartPole-v1?velocities=false",
    "probe:both",
    "gymnax:",
    "jax:Pendulum-v1",
]
values = anything | st.sampled_from([*NAMES, *IDS])


@st.composite
def metas(draw, meta):
    """A meta with some of its values replaced, removed or added, at any depth."""
    meta = json.loads(json.dumps(meta))
    for _ in range(draw(st.integers(1, 3))):
        inner = draw(st.sampled_from([meta, meta, meta["config"], meta["options"]]))
        if not isinstance(inner, dict):
            continue
        name = draw(st.sampled_from([*inner, "network", "on"]))
        if name in ("config", "options") or draw(st.booleans()):
            inner[name] = draw(values if name not in ("config", "options") else st.none())
        else:
            inner.pop(name, None)
        if meta.get("config") is None or meta.get("options") is None:
            break
    return meta


@QUICK_AND_LONG
def test_any_meta_loads_or_gets_a_sentence(effort, real, trap):
    path, meta = real

    def one(asked):
        seal(path, asked)
        said = sentence(lambda: rondel.load(path).close())
        assert said is None or 20 < len(said) < 2_000

    try:
        holds(one, metas(meta), 25 * effort)
    finally:
        seal(path, meta)


@QUICK_AND_LONG
def test_any_json_in_a_meta_is_read_or_gets_a_sentence(effort, real, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(real[0], path)
    some = st.dictionaries(st.sampled_from(list(real[1])), anything)

    def one(values):
        seal(path, real[1] | values)
        assert len(sentence(run_folder.read, path) or "") < 500

    holds(one, some, 100 * effort)


@pytest.mark.parametrize(
    "change",
    [
        {"network": "trap:make"},
        {"env": "gymnasium:trap:Env-v0"},
        {"env": "trap:reach"},
        {"env": IDS[0]},
        {"algorithm": "trap"},
        {"config": None, "options": {"network": "trap:make"}},
    ],
)
def test_what_a_file_names_is_not_imported(change, real, trap, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(real[0], path)
    meta = json.loads(json.dumps(real[1]))
    if "network" in change:
        meta["config"] |= change
    else:
        meta |= change | {"options": meta["options"] | change.get("options", {})}
    seal(path, meta)
    for use in (rondel.load, rondel.resume, rondel.evaluate):
        with pytest.raises(RondelError, match=r"of your own|version of Rondel: 'network'"):
            use(path)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("place", "change", "words"),
    [
        ("config", {"hidden": [2**30, 2**30]}, "The learner would take"),
        ("config", {"hidden": [2**12, 2**12]}, r"a learner of [\d,]+ bytes, but its arrays take"),
        ("options", {"lanes": 2**36, "block": 1}, "has lanes=68719476736, but its arrays differ"),
        ("options", {"lag": 2**39}, "lag must be an integer from 0 to 1,000"),
        ("meta", {"in_flight": 10**9}, "has in_flight=1000000000, which Rondel"),
        ("meta", {"round": 2**64}, "has round=18446744073709551616, which"),
        ("meta", {"seed": "x" * 10**6}, "has seed='xxxxx"),
    ],
)
def test_a_claimed_size_makes_nothing(place, change, words, real, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(real[0], path)
    meta = json.loads(json.dumps(real[1]))
    (meta if place == "meta" else meta[place]).update(change)
    seal(path, meta)
    with pytest.raises(RondelError, match=words):
        rondel.load(path)


# Files of arrays.

DTYPES = (
    "BOOL F4 F6_E2M3 F8_E5M2 F8_E4M3 F8_E8M0 U8 I8 I16 F16 BF16 I32 F32 C64 F64 I64 U64".split()
)
shapes = st.lists(st.integers(0, 6) | st.sampled_from([2**31, 2**62, 2**64]), max_size=3)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(DTYPES) | anything,
        "shape": shapes | anything,
        "data_offsets": st.lists(st.integers(0, 60), min_size=2, max_size=2) | anything,
    }
)
headers = st.dictionaries(st.sampled_from(["params/w", "__metadata__", "", "/"]), entries)


@st.composite
def files(draw, data):
    """A file of arrays with anything in it, or with a header that fits better and better."""
    if draw(st.booleans()):
        return draw(mutated(data))
    header = draw(headers)
    if draw(st.booleans()):  # offsets that could be right
        at = 0
        for entry in header.values():
            size = draw(st.sampled_from([0, 1, 4, 8, 40]))
            entry["data_offsets"], at = [at, at + size], at + size
    text = json.dumps(header).encode()
    length = draw(st.just(len(text)) | st.integers(0, 2**64 - 1))
    return struct.pack("<Q", length) + text + draw(st.binary(max_size=60))


@QUICK_AND_LONG
def test_any_arrays_load_or_get_a_sentence(effort, tmp_path):
    path = save_small(tmp_path, 1)
    data = (path / STATE).read_bytes()

    def one(other):
        (path / STATE).write_bytes(other)
        seal(path, {})
        sentence(checkpoint.load, path, small(0)[0], None)
        sentence(checkpoint.read_shapes, path)
        sentence(checkpoint.read_arrays, path, "")

    holds(one, files(data), 150 * effort)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dtype_that_numpy_has_not_is_a_sentence(dtype, tmp_path):
    path = save_small(tmp_path, 1)
    header = {"params/w": {"dtype": dtype, "shape": [8], "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    (path / STATE).write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    seal(path, {})
    with pytest.raises(CheckpointError):
        checkpoint.load(path, small(0)[0], None)
    if dtype not in ("BOOL", "U8", "I8"):
        with pytest.raises(CheckpointError):
            checkpoint.read_arrays(path)


@pytest.mark.timeout(60)
def test_files_of_a_terabyte_are_refused_at_once(tmp_path):
    path = save_small(tmp_path, 1)
    whole = {name: (path / name).read_bytes() for name in (META, STATE)}
    for name, data in whole.items():
        with (path / name).open("r+b") as file:
            file.truncate(2**40)
        with pytest.raises(CheckpointError, match=f"{name} is damaged"):
            small_checkpoints.verify(path)
        (path / name).write_bytes(data)
    small_checkpoints.verify(path)


def test_a_place_that_can_not_be_looked_at_is_a_sentence(tmp_path):
    with pytest.raises(RondelError, match="can't be read: File name too long"):
        locate.find_checkpoint(tmp_path / ("x" * 300))
