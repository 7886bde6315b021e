"""Plans by name, after the papers that ran them.

A name is the whole text of a plan. In `impala*16` the number is of copies: pieces with most copies
get that many, other copied ones as many in proportion (at least 1), and single ones stay single:
`apex*8` is `actor*8 | memory*4 | gradient+update`.
"""

from typing import NamedTuple


class Preset(NamedTuple):
    """A plan with its names."""

    names: tuple[str, ...]
    text: str
    lag: int
    free: bool
    source: str


_MSRL = "MSRL (Zhu et al., 2023)"
_TABLE = (
    Preset(
        ("anakin", "gpu-only"),
        "all",
        0,
        False,
        f"Podracer's Anakin (Hessel et al., 2021); WarpDrive (Lan et al., 2021); {_MSRL}",
    ),
    Preset(
        ("single-learner-coarse",),
        "actor*4 | learner",
        0,
        False,
        f"{_MSRL}; A2C and PPO on workers, Acme",
    ),
    Preset(
        ("seed", "single-learner-fine"),
        "env*4 | policy+learner",
        0,
        False,
        f"SEED RL (Espeholt et al., 2020); {_MSRL}",
    ),
    Preset(("environments",), "env | policy+learner", 0, False, _MSRL),
    Preset(
        ("ddppo", "multi-learner"), "all*2", 0, False, f"DD-PPO (Wijmans et al., 2020); {_MSRL}"
    ),
    Preset(
        ("central",),
        "actor+memory+gradient*4 | update",
        0,
        False,
        f"{_MSRL}, after the parameter server (Li et al., 2014)",
    ),
    Preset(("impala",), "actor*4 | learner", 1, True, "IMPALA (Espeholt et al., 2018); APPO"),
    Preset(
        ("sebulba",),
        "env*4 | policy | learner",
        1,
        False,
        "Podracer's Sebulba (Hessel et al., 2021)",
    ),
    Preset(
        ("apex",),
        "actor*4 | memory*2 | gradient+update",
        2,
        True,
        "Ape-X (Horgan et al., 2018); R2D2, R2D3",
    ),
    Preset(
        ("gorila",),
        "actor*4 | memory*2 | gradient*2 | update",
        2,
        True,
        "Gorila (Nair et al., 2015)",
    ),
    Preset(
        ("qtopt",),
        "actor*4 | memory | label*2 | gradient+update",
        2,
        True,
        "QT-Opt (Kalashnikov et al., 2018)",
    ),
    Preset(("a3c",), "actor+memory+gradient*4 | update", 1, True, "A3C (Mnih et al., 2016)"),
)
PRESETS = {name: preset for preset in _TABLE for name in preset.names}
