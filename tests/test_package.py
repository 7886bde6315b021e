"""What holds for the package as a whole."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import rondel


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_public_names_are_few_and_there() -> None:
    assert len(rondel.__all__) <= 40
    for name in rondel.__all__:
        assert getattr(rondel, name) is not None
    with pytest.raises(AttributeError, match="fly"):
        rondel.fly  # noqa: B018


def test_importing_rondel_imports_nothing_heavy() -> None:
    code = (
        "import rondel, sys; print({'jax', 'gymnasium', 'tyro', 'matplotlib'} & set(sys.modules))"
    )
    assert python(code) == "set()"


def test_no_array_is_made_at_import() -> None:
    """One would start XLA's threads, and a child forked after that hangs."""
    modules = [m.name for m in pkgutil.walk_packages(rondel.__path__, "rondel.")]
    modules.remove("rondel.__main__")
    code = (
        "import importlib, jax\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "from jax._src import xla_bridge\n"
        "print(len(modules := xla_bridge._backends))"
    )
    assert len(modules) > 40
    assert python(code) == "0"
