"""A run from a checkpoint: `load`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rondel.execution.backends import registry
from rondel.run.session.run import Run, resumed_limits
from rondel.run.storage import locate, metadata, run_folder

OTHER_MACHINE = "XLA had other flags or threads before: last digits may differ."


def load(
    path: str | os.PathLike[str],
    *,
    algorithm: Any = None,
    env: Any = None,
    config: Any = None,
    network: Any = None,
    memory: bool = True,
    **placing: Any,
) -> Run:
    """Load a run from its newest checkpoint or a given one, to query, evaluate or continue it.

    It runs in this process, unless `placing` says otherwise: plan, lag, free, on, resources,
    address, deadline, restarts. Without `memory` the replay memory is not read.
    """
    placing = {"on": registry.IN_DRIVER, "resources": None, "address": None} | placing
    found = locate.find_checkpoint(Path(path))
    before = metadata.read(found)
    limits = resumed_limits(before)
    metadata.check_lanes(found, before)
    setup = run_folder.setup_from(before, algorithm, env, config, network, placing)
    metadata.check_learner(found, setup)
    run = Run(setup, limits, run_folder.home_of(found))
    try:
        run.restore(found, memory)
    except BaseException:
        run.close()
        raise
    run.notes += [] if before.machine == setup.machine else [OTHER_MACHINE]
    return run
