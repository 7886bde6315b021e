"""Plans by name: what papers and systems did.

A name stands alone as the whole text of a plan. A number, `impala*16`, is that of copies: the
pieces that have most get so many, the other copied ones as many in proportion (at least 1), and
what there is one of stays one: `apex*8` is `actor*8 | memory*4 | gradient+update`.
"""

from typing import NamedTuple


class Preset(NamedTuple):
    """A plan with a name."""

    text: str
    lag: int
    free: bool
    who: str  # did it so


PRESETS = {
    "single-learner-coarse": Preset(
        "actor*4 | learner", 0, False, "MSRL (Zhu et al., 2023); A2C and PPO on workers, Acme"
    ),
    "single-learner-fine": Preset(
        "env*4 | policy+learner", 0, False, "MSRL (Zhu et al., 2023), after SEED RL"
    ),
    "multi-learner": Preset("all*2", 0, False, "MSRL (Zhu et al., 2023), after DD-PPO"),
    "gpu-only": Preset("all", 0, False, "MSRL (Zhu et al., 2023); WarpDrive (Lan et al., 2021)"),
    "environments": Preset(
        "env | policy+learner", 0, False, "MSRL (Zhu et al., 2023), for multi-agent learning"
    ),
    "central": Preset(
        "actor+memory+gradient*4 | update",
        0,
        False,
        "MSRL (Zhu et al., 2023), after the parameter server (Li et al., 2014)",
    ),
    "impala": Preset("actor*4 | learner", 1, True, "IMPALA (Espeholt et al., 2018); APPO"),
    "seed": Preset("env*4 | policy+learner", 0, False, "SEED RL (Espeholt et al., 2020)"),
    "sebulba": Preset(
        "env*4 | policy | learner", 1, False, "Podracer's Sebulba (Hessel et al., 2021)"
    ),
    "apex": Preset(
        "actor*4 | memory*2 | gradient+update", 2, True, "Ape-X (Horgan et al., 2018); R2D2, R2D3"
    ),
    "gorila": Preset(
        "actor*4 | memory*2 | gradient*2 | update", 2, True, "Gorila (Nair et al., 2015)"
    ),
    "qtopt": Preset(
        "actor*4 | memory | label*2 | gradient+update",
        2,
        True,
        "QT-Opt (Kalashnikov et al., 2018)",
    ),
    "a3c": Preset("actor+memory+gradient*4 | update", 1, True, "A3C (Mnih et al., 2016)"),
    "ddppo": Preset("all*2", 0, False, "DD-PPO (Wijmans et al., 2020)"),
    "anakin": Preset("all", 0, False, "Podracer's Anakin (Hessel et al., 2021)"),
}
