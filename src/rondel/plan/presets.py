"""Plans by name, after the papers that ran them.

A name is the whole text of a plan. In `impala*16` the number is of copies: pieces with most copies
get that many, other copied ones as many in proportion (at least 1), and single ones stay single:
`apex*8` is `actor*8 | memory*4 | gradient+update`.

The names of MSRL (Zhu et al., 2023) are gpu-only, single-learner-coarse, single-learner-fine,
environments, multi-learner and central; the others are those of the papers beside them.
"""

from typing import NamedTuple


class Preset(NamedTuple):
    """A plan with its names."""

    names: tuple[str, ...]
    text: str
    lag: int = 0
    free: bool = False


_TABLE = (
    # Podracer's Anakin (Hessel et al., 2021); WarpDrive (Lan et al., 2021)
    Preset(("anakin", "gpu-only"), "all"),
    # A2C and PPO on workers; Acme (Hoffman et al., 2020)
    Preset(("single-learner-coarse",), "actor*4 | learner"),
    # SEED RL (Espeholt et al., 2020)
    Preset(("seed", "single-learner-fine"), "env*4 | policy+learner"),
    Preset(("environments",), "env | policy+learner"),
    # DD-PPO (Wijmans et al., 2020)
    Preset(("ddppo", "multi-learner"), "all*2"),
    # a parameter server (Li et al., 2014)
    Preset(("central",), "actor+memory+gradient*4 | update"),
    # IMPALA (Espeholt et al., 2018); APPO
    Preset(("impala",), "actor*4 | learner", lag=1, free=True),
    # Podracer's Sebulba (Hessel et al., 2021)
    Preset(("sebulba",), "env*4 | policy | learner", lag=1),
    # Ape-X (Horgan et al., 2018); R2D2, R2D3
    Preset(("apex",), "actor*4 | memory*2 | gradient+update", lag=2, free=True),
    # Gorila (Nair et al., 2015)
    Preset(("gorila",), "actor*4 | memory*2 | gradient*2 | update", lag=2, free=True),
    # QT-Opt (Kalashnikov et al., 2018)
    Preset(("qtopt",), "actor*4 | memory | label*2 | gradient+update", lag=2, free=True),
    # A3C (Mnih et al., 2016)
    Preset(("a3c",), "actor+memory+gradient*4 | update", lag=1, free=True),
)
PRESETS = {name: preset for preset in _TABLE for name in preset.names}
