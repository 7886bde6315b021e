"""What holds for every test: shapes never broadcast by accident, one XLA thread, one cache.

Many tests compile the same programs; the cache on disk compiles each once, for all workers.
"""

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

CACHE = Path(__file__).parent.parent / ".pytest_cache" / "xla"

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
os.environ.setdefault("NPROC", "1")  # programs for more threads would be in the same cache
os.environ.setdefault("RAY_worker_niceness", "0")  # else its actors come last

import jax  # noqa: E402

from rondel.run.setup import jax_process  # noqa: E402

# A shell that puts a job in the background makes it deaf to Ctrl-C, and so are the programs that it
# starts: tests send that signal to some of theirs.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    with suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGINT, signal.default_int_handler)

jax_process.configure_jax()
jax.config.update("jax_num_cpu_devices", 1)  # else the first test with copies would settle it


@pytest.fixture(scope="module", autouse=True)
def forget() -> Iterator[None]:
    """Programs of one module are of no use to the next, and thousands of them are slow to keep."""
    yield
    jax.clear_caches()
    gc.collect()
