"""A run on disk: folders of named arrays that a kill at any instant leaves loadable.

    run/checkpoints/000007/state.safetensors    the state of the run, parameters under params/
                           memory.safetensors   its replay memory; only the newest keeps one
                           meta.json            the caller's metadata, and checksums

A checkpoint appears and disappears by one rename of its whole folder. It holds no pickle, so that a
stranger's checkpoint can't run code. Only one run at a time writes into a folder.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from rondel.errors import RondelError
from rondel.run.storage.locate import MEMORY, META, STATE, listed, listed_if_possible
from rondel.types import Tree

FORMAT = 1
_META_BYTES = 1 << 24  # Rondel writes no larger meta.json

# dtypes that safetensors writes and reads back as NumPy arrays
_INTEGERS = "uint8 uint16 uint32 uint64 int8 int16 int32 int64"
_DTYPES = f"bool {_INTEGERS} float16 bfloat16 float32 float64".split()


class CheckpointError(RondelError):
    """A checkpoint that can't be used: damaged, from a newer Rondel, or of other shapes."""


def save(folder: Path, state: Tree, memory: Tree, meta: dict[str, Any], keep: int = 3) -> Path:
    """Write the next checkpoint of the run in `folder`, then remove all but the newest `keep`.

    A memory without leaves, such as (), has no file. JSON must be able to hold `meta`.
    """
    root = folder / "checkpoints"
    partial = None
    try:
        root.mkdir(parents=True, exist_ok=True)
        for stale in (*root.glob(".*.partial"), *root.glob(".*.removed")):
            shutil.rmtree(stale)  # its writer was killed
        last = max((int(path.name) for path in listed(root)), default=0)
        path = root / f"{last + 1:06d}"
        partial = root / f".{path.name}.partial"
        _write(partial, state, memory, meta)
        os.rename(partial, path)
        _sync(root)
        _sync(root.parent)
        # old ones may go only now that the new one is safe
        _prune(root, keep)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        good = listed_if_possible(root)
        unharmed = f" The last good one, {good[-1]}, is unharmed." if good else ""
        raise RondelError(
            f"A checkpoint can't be saved in {root}: {reason}.{unharmed} Make space there, make "
            "the folder writable, or use another one for the run."
        ) from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
    return path


def load(
    path: Path, state_like: Tree, memory_like: Tree | None
) -> tuple[Tree, Tree | None, dict[str, Any]]:
    """The state, the memory and the meta of one checkpoint, in the structure of the `*_like` trees.

    These hold arrays or ShapeDtypeStructs; names, shapes and dtypes must match. The memory is None
    if `memory_like` is None or if its file was removed, as from all but the newest. All leaves are
    NumPy arrays with memory of their own: the files may change afterwards.
    """
    asked = memory_like is not None
    sums, meta = _checked(path, (STATE, MEMORY) if asked else (STATE,))
    state = _fit(_arrays(path / STATE), state_like, path)
    if not asked or (MEMORY in sums and not (path / MEMORY).exists()):
        return state, None, meta
    arrays = _arrays(path / MEMORY) if MEMORY in sums else {}
    return state, _fit(arrays, memory_like, path), meta


def read_meta(path: Path) -> dict[str, Any]:
    """The metadata that was given to `save`. Only meta.json is read and checked."""
    return _checked(path, ())[1]


def read_arrays(path: Path, prefix: str = "params/") -> dict[str, np.ndarray]:
    """The arrays of a checkpoint's state whose names begin with `prefix`, by name."""
    _checked(path, (STATE,))
    arrays = _arrays(path / STATE)
    return {name: array for name, array in arrays.items() if name.startswith(prefix)}


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a checkpoint's state by name, without the arrays themselves."""
    _checked(path, (STATE,))
    with safe_open(path / STATE, framework="np") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def _named(tree: Tree) -> dict[str, Any]:
    """The leaves by their names on disk, in the order of the tree.

    Parameters are under params/ however many wrappers a learner has: `learner/inner/params/w` is
    `params/w`. If two names would then be the same, both keep their whole path.
    """
    paths, leaves = [], []
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        paths.append(jax.tree_util.keystr(keys, simple=True, separator="/"))
        leaves.append(leaf if hasattr(leaf, "dtype") else np.asarray(leaf))
    short = [_shortened(path) for path in paths]
    times = Counter(short)
    names = [s if times[s] == 1 else path for s, path in zip(short, paths, strict=True)]
    if len(set(names)) < len(names):
        names = paths
    name, count = max(Counter(names).items(), key=lambda pair: pair[1], default=("", 0))
    if count > 1:
        raise RondelError(
            f"Arrays in a checkpoint must have different paths, but {count} are called {name!r}. "
            "Rename a dict key on the way to them, such as one with a slash."
        )
    return dict(zip(names, leaves, strict=True))


def _shortened(path: str) -> str:
    parts = path.removeprefix("learner/").split("/")
    return "/".join(part for part in parts if part != "inner") or path


def _write(folder: Path, state: Tree, memory: Tree, meta: dict[str, Any]) -> None:
    folder.mkdir()
    sums = {STATE: _write_arrays(folder / STATE, state)}
    if jax.tree.leaves(memory):
        sums[MEMORY] = _write_arrays(folder / MEMORY, memory)
    text = json.dumps({"format": FORMAT, "meta": meta, "files": sums}, indent=1)
    body = text.removesuffix("\n}").encode()
    (folder / META).write_bytes(body + _seal(body))
    _sync(folder / META)
    _sync(folder)


def _write_arrays(path: Path, tree: Tree) -> dict[str, int]:
    arrays = {}
    for name, leaf in _named(tree).items():
        if str(leaf.dtype) not in _DTYPES:
            raise RondelError(
                f"A checkpoint can't hold {name} of dtype {leaf.dtype}. Use numbers or bools; for "
                "a random key, jax.random.key_data(key)."
            )
        # safetensors needs C order; on the CPU this is a view
        arrays[name] = np.asarray(leaf, order="C")
    save_file(arrays, path)
    _sync(path)
    return _sum(path)


def _seal(body: bytes) -> bytes:
    """The last field of meta.json: a checksum of every byte before it."""
    return b',\n "crc32": "%08x"\n}\n' % zlib.crc32(body)


def _sum(path: Path) -> dict[str, int]:
    size = crc = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return {"bytes": size, "crc32": crc}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _prune(root: Path, keep: int) -> None:
    older = listed(root)[:-1]
    kept = older[-(keep - 1) :] if keep > 1 else []
    for path in older:
        if path in kept:
            (path / MEMORY).unlink(missing_ok=True)
            continue
        # renamed first: half removed, it would still look like a checkpoint
        removed = root / f".{path.name}.removed"
        os.rename(path, removed)
        shutil.rmtree(removed)


def _checked(path: Path, files: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The checksums and the caller's meta, if meta.json and `files` are undamaged."""
    try:
        return _inspect(path, files)
    except CheckpointError as damage:
        good = _older_good(path)
        hint = f"An older one is good: {good}." if good else "No older one is good."
        raise CheckpointError(f"{damage} {hint}") from None


def _older_good(path: Path) -> Path | None:
    """The newest undamaged checkpoint that is older than this one."""
    serial = int(path.name) if path.name.isdecimal() else 0
    older = [other for other in listed_if_possible(path.parent) if int(other.name) < serial]
    return next(filter(_sound, reversed(older)), None)


def _sound(path: Path) -> bool:
    try:
        _inspect(path, (STATE, MEMORY))
    except CheckpointError:
        return False
    return True


def _inspect(path: Path, files: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        sums, meta = _inspect_meta(path / META)
        for name in files:
            # the memory is removed when a newer checkpoint has one
            if name == MEMORY and not (name in sums and (path / name).exists()):
                continue
            _inspect_arrays(path / name, sums.get(name))
    except OSError as error:
        raise CheckpointError(f"{error.filename} can't be read: {error.strerror}.") from None
    return sums, meta


def _inspect_meta(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with _regular(path).open("rb") as file:
        data = file.read(_META_BYTES)
    size = len(_seal(b""))
    body, seal = data[:-size], data[-size:]
    if seal != _seal(body):
        raise CheckpointError(f"{path} is damaged: its checksum differs.")
    try:
        content = json.loads(data)
        if content["format"] > FORMAT:
            raise CheckpointError(
                f"{path} has format {content['format']}, from a newer Rondel; this one reads up to "
                f"{FORMAT}. Upgrade Rondel."
            )
        sums, meta = dict(content["files"]), dict(content["meta"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise CheckpointError(f"{path} is damaged: Rondel did not write this.") from None
    return sums, meta


def _inspect_arrays(path: Path, expected: Any) -> None:
    size = _regular(path).stat().st_size
    # first the size: a file of the wrong one need not be read
    saved = expected.get("bytes") if isinstance(expected, dict) else None
    if saved != size or _sum(path) != expected:
        raise CheckpointError(f"{path} is damaged: its {size:,} bytes differ from the saved ones.")
    try:
        with safe_open(path, framework="np"):
            pass
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged: {error}.") from None


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an undamaged file; it may still hold dtypes that NumPy doesn't have."""
    try:
        return load_file(path)
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror or error}.") from None
    except Exception as error:  # safetensors and NumPy raise many kinds
        reason = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"Rondel did not write {path} ({reason}).") from None


def _regular(path: Path) -> Path:
    # opening a pipe or a device could block for ever
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is damaged: it is not a file.")
    return path


def _fit(arrays: dict[str, np.ndarray], like: Tree, path: Path) -> Tree:
    wanted, leaves = _named(like), []
    why = "It is from another algorithm, network or environment; its meta.json says which."
    for name, leaf in wanted.items():
        need = _described(leaf)
        have = _described(arrays[name]) if name in arrays else "nothing"
        if have != need:
            raise CheckpointError(f"{name} in {path} must be {need}, got {have}. {why}")
        leaves.append(arrays[name])
    if more := sorted(arrays.keys() - wanted.keys()):
        raise CheckpointError(f"{path} has {more[0]}, but this run does not. {why}")
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _described(array: Any) -> str:
    return f"{array.dtype} {list(array.shape)}"
