"""Whole runs, small: what `train`, `start`, `load`, `resume` and `evaluate` promise."""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rondel
from rondel import RondelError
from rondel.algorithms import dqn, ppo
from rondel.envs.errors import EnvError
from rondel.run.display.display import Display
from rondel.run.setup.prepare import prepare
from rondel.run.storage import checkpoint, locate
from rondel.run.training.signals import Terminated
from run.small import DQN, PPO


def test_a_run_has_a_folder(tmp_path: Path) -> None:
    run = rondel.train("ppo", "CartPole-v1", steps=1_000, out=tmp_path / "a", **PPO)
    assert {p.name for p in run.path.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "checkpoints",
        "curve.png",
        "profile.json",
        "trace.json",
        "live.json",
    }
    assert json.loads((run.path / "config.json").read_text())["config"]["hidden"] == [8]
    assert run.result["eval_return"] == pytest.approx(run.evaluate(100).mean)
    with pytest.raises(RondelError, match="already holds a run"):
        rondel.train("ppo", "CartPole-v1", steps=1_000, out=tmp_path / "a", **PPO)


class Told(Display):
    """It remembers what was said."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(re.sub(r"\d+\.\d s\.$", "N s.", message))


def compiled(what: str) -> list[str]:
    return [f"Compiling for the {what}; this can take a while.", f"Compiled; {what} took N s."]


def test_compiling_is_said_before_and_after(tmp_path: Path) -> None:
    shown = {"out": tmp_path, "eval_episodes": 0, "display": (told := Told())}
    rondel.train("ppo", "CartPole-v1", steps=300, **PPO, **shown)
    assert told.notes == compiled("first round")
    told.notes.clear()
    rondel.resume(tmp_path, steps=600, display=told)
    assert told.notes == compiled("first round")


def test_what_learns_after_a_warm_up_is_compiled_then(tmp_path: Path) -> None:
    shown = {"out": tmp_path, "eval_episodes": 0, "display": (told := Told())}
    cut = {"plan": "actor+memory | gradient+update", "on": "inline"}
    rondel.train("dqn", "gymnasium:CartPole-v1", steps=300, **DQN, **cut, **shown)
    assert told.notes == compiled("first round") + compiled("first learning round")


def test_one_program_that_learns_is_compiled_in_the_warm_up(tmp_path: Path) -> None:
    """It runs there too, and draws nothing: to compile it is not announced where it is done."""
    shown = {"out": tmp_path, "eval_episodes": 0, "display": (told := Told())}
    rondel.train("dqn", "gymnasium:CartPole-v1", steps=300, **DQN, **shown)
    assert told.notes == compiled("first round")


def test_a_run_ends_at_the_first_round_past_its_steps() -> None:
    run = rondel.start("ppo", "CartPole-v1", steps=1_000, **PPO)
    reports = list(run)
    assert [report.round for report in reports] == list(range(len(reports)))
    assert reports[-1].steps >= 1_000 > reports[-2].steps
    # a round is 16 steps in 8 lanes; those that only reset a lane are not transitions
    assert reports[-1].steps < len(reports) * 128
    assert reports[-1].episodes == sum(len(report.returns) for report in reports)


def test_a_run_ends_when_the_goal_is_reached() -> None:
    run = rondel.start("ppo", "CartPole-v1", steps=100_000, until_return=15.0, **PPO)
    returns = np.concatenate([report.returns for report in run])
    assert len(returns) >= 100
    assert returns[-100:].mean() >= 15.0
    assert run.steps < 100_000
    assert run.return_mean == pytest.approx(returns[-100:].mean())


def test_the_goal_needs_a_hundred_episodes() -> None:
    run = rondel.start("ppo", "CartPole-v1", steps=100_000, until_return=-1.0, **PPO)
    list(run)
    assert run.episodes >= 100


def test_a_policy_acts_on_one_observation_or_many() -> None:
    policy = rondel.start("ppo", "CartPole-v1", steps=1, **PPO).policy
    one = policy.act([0.0, 0.1, 0.0, -0.1])
    assert one in (0, 1)
    many = policy.act(np.zeros((5, 4)))
    assert many.shape == (5,)
    with pytest.raises(RondelError, match="shape"):
        policy.act(np.zeros(3))


def test_a_policy_acts_in_the_units_of_the_environment() -> None:
    policy = rondel.start("ppo", "Pendulum-v1", steps=1, **PPO).policy
    explored = np.stack([policy.act(np.ones(3), explore=True) for _ in range(50)])
    assert explored.shape == (50, 1)
    assert 1.5 < np.abs(explored).max() <= 2.0  # the torque is -2 to 2


def test_hooks_see_every_round_and_can_stop(tmp_path: Path) -> None:
    seen = []

    def stop_at_third(run: rondel.Run, report: Any) -> bool:
        assert run.ring.round == report.round + 1  # the state is that of this round
        seen.append(report.round)
        return len(seen) == 3

    run = rondel.train(
        "ppo",
        "CartPole-v1",
        steps=5_000,
        out=tmp_path,
        hooks=[stop_at_third],
        eval_episodes=0,
        **PPO,
    )
    assert seen == [0, 1, 2]
    assert run.steps < 5_000


def test_a_config_bypasses_tuned_settings() -> None:
    config = ppo.Config(learning_rate=0.123)
    run = rondel.start("ppo", "CartPole-v1", steps=1, config=config)
    assert run.setup.config == config
    assert not run.setup.tuned


def test_flags_beat_tuned_settings_which_beat_defaults() -> None:
    tuned = rondel.start("ppo", "Pendulum-v1", steps=1).setup
    assert tuned.tuned
    name, value = next((k, v) for k, v in tuned.tuned.items() if hasattr(tuned.config, k))
    assert getattr(tuned.config, name) == value
    plain = rondel.start("ppo", "Pendulum-v1", steps=1, tuned=False).setup
    assert plain.config == ppo.Config()
    flagged = rondel.start("ppo", "Pendulum-v1", steps=1, discount=0.5).setup
    assert flagged.config.discount == 0.5
    assert "discount" not in flagged.tuned


def test_a_free_run_goes_without_the_tuned_scaling_of_rewards() -> None:
    free = prepare("impala", "CartPole-v1", fields={"plan": "impala"})
    assert not free.options.scale_rewards
    assert "scale_rewards" not in free.tuned
    in_step = prepare("impala", "CartPole-v1", fields={"plan": "actor*4 | learner"})
    assert in_step.options.scale_rewards
    with pytest.raises(RondelError, match="Leave out one of the two"):
        prepare("impala", "CartPole-v1", fields={"plan": "impala", "scale_rewards": True})


def test_a_tuned_block_that_does_not_fit_what_is_asked_is_left_out() -> None:
    for plan in ("actor*4 | learner", "actor*auto | learner", "actor*2..4 | learner"):
        tuned = prepare("impala", "CartPole-v1", fields={"plan": plan})
        assert tuned.options.block == 2
    odd = prepare("impala", "CartPole-v1", fields={"lanes": 9})
    assert odd.options.block == 9
    assert "block" not in odd.tuned


@dataclass(frozen=True)
class Config:
    sign: float = 1.0


def make(config: Config, spec: rondel.EnvSpec) -> rondel.Algorithm:
    """PPO under another name, as a user's own function."""
    return ppo.make(ppo.Config(rollout=16, minibatches=2, hidden=(8,)), spec)


def test_ones_own_algorithm_and_env(tmp_path: Path) -> None:
    import gymnasium

    run = rondel.train(
        make,
        lambda: gymnasium.make("CartPole-v1"),
        config=Config(),
        steps=300,
        lanes=4,
        out=tmp_path,
        eval_episodes=5,
    )
    assert run.steps >= 300
    with pytest.raises(RondelError, match="algorithm of your own"):
        rondel.load(tmp_path)
    again = rondel.load(
        tmp_path, algorithm=make, config=Config(), env=lambda: gymnasium.make("CartPole-v1")
    )
    jax.tree.map(np.testing.assert_array_equal, run.state, again.state)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_with_a_checkpoint(signum: signal.Signals, tmp_path: Path) -> None:
    def interrupt(run: rondel.Run, report: Any) -> None:
        if report.round == 2:
            os.kill(os.getpid(), signum)

    before = signal.getsignal(signum)
    with pytest.raises(KeyboardInterrupt) as error:
        rondel.train("ppo", "CartPole-v1", steps=5_000, out=tmp_path, hooks=[interrupt], **PPO)
    assert isinstance(error.value, Terminated) == (signum == signal.SIGTERM)
    assert signal.getsignal(signum) == before
    assert checkpoint.read_meta(locate.find_checkpoint(tmp_path))["round"] == 3
    assert rondel.resume(tmp_path, steps=1_000, eval_episodes=0).steps >= 1_000


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    saved = []

    def save_once(run: rondel.Run, report: Any) -> None:
        if report.round == 1:
            saved.append(run.save())
            # from the next round on the critic is nonsense
            broken = jax.tree.map(lambda x: x * jnp.nan, run.state.params["critic"])
            params = {**run.state.params, "critic": broken}
            run.ring.update[0].restore({"learner": run.state._replace(params=params)})

    with pytest.raises(RondelError, match="loss/value is nan") as error:
        rondel.train("ppo", "CartPole-v1", steps=5_000, out=tmp_path, hooks=[save_once], **PPO)
    assert str(saved[0]) in str(error.value)
    assert locate.find_checkpoint(tmp_path) == saved[0]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(rondel.load(tmp_path).state.params))


def test_an_env_that_raises_shows_its_own_traceback(tmp_path: Path) -> None:
    import gymnasium

    class Broken(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Discrete(2)
        steps = 0

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> Any:
            self.steps += 1
            if self.steps > 100:
                raise ZeroDivisionError("the spring broke")
            return np.zeros(2, np.float32), 0.0, False, False, {}

    with pytest.raises(EnvError, match=r"lane 0, seed \d+, last action \d") as error:
        rondel.train("ppo", Broken, steps=5_000, out=tmp_path, **PPO)
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    frames = error.traceback[-1], error.value.__cause__.__traceback__
    assert frames[1] is not None


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"algorithm": "pppo"}, "Did you mean ppo"),
        ({"env": "CartPol-v1"}, "CartPole-v1"),
        ({"env": "jaxx:CartPole-v1"}, "jax"),
        ({"learning_rat": 1.0}, "has no field 'learning_rat'. Did you mean learning_rate?"),
        (
            {"learning_rate": "fast"},
            "must be float, such as .*, got 'fast'",
        ),
        ({"rollout": 1.5}, "must be int, such as"),
        ({"hidden": 64}, "several ints"),
        ({"rollout": 0}, "rollout"),
        ({"lanes": 0}, "1 or more"),
        ({"block": 3}, "Use 1, 2, 4 or 8"),
        ({"minibatches": 7}, "minibatches"),
        ({"steps": 0}, "from 1 to 2..63 - 1, got 0"),
        ({"seed": -1}, "an integer"),
        ({"steps": "many"}, "an integer"),
        ({"until_return": float("nan")}, "nan"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"algorithm": lambda config, spec: 3}, "must return an Algorithm"),
        ({"algorithm": "dqn", "env": "Pendulum-v1"}, "discrete"),
        ({"algorithm": 3}, "must be a name, a module or a function, got 3"),
    ],
)
def test_bad_input_gets_a_sentence(request_: dict[str, Any], sentence: str) -> None:
    asked = {"algorithm": "ppo", "env": "CartPole-v1", "steps": 100} | request_
    small = PPO if asked["algorithm"] == "ppo" else {}
    with pytest.raises(RondelError, match=sentence):
        rondel.start(**small | asked)


@pytest.mark.parametrize("config", [{"rollout": 3}, dqn.Config()])
def test_a_config_of_another_kind_is_refused(config: Any) -> None:
    with pytest.raises(RondelError, match="config must be ppo's Config"):
        rondel.start("ppo", "CartPole-v1", config=config)


def test_a_run_can_be_evaluated_in_another_world(tmp_path: Path) -> None:
    rondel.train("ppo", "CartPole-v1", steps=300, out=tmp_path, eval_episodes=0, **PPO)
    assert rondel.evaluate(tmp_path, "gymnasium:CartPole-v1", episodes=3).mean > 5
    with pytest.raises(RondelError, match="must have the observations and actions of"):
        rondel.evaluate(tmp_path, "Acrobot-v1", episodes=3)


def test_a_policy_that_explores_does_not_repeat_itself() -> None:
    run = rondel.start("ppo", "Pendulum-v1", steps=1, **PPO)
    actions = [float(run.policy.act(np.zeros(3), explore=True)[0]) for _ in range(20)]
    assert len(set(actions)) > 5


def test_numbers_that_are_none_from_an_env_are_the_envs(tmp_path: Path) -> None:
    import gymnasium

    class Late(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Discrete(2)
        n = 0

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> Any:
            self.n += 1
            reward = np.nan if self.n > 100 else 0.0
            return np.zeros(2, np.float32), reward, False, False, {}

    with pytest.raises(RondelError, match=r"rewards must be finite, but own:Late gave"):
        rondel.train("ppo", Late, steps=5_000, out=tmp_path, **PPO)


def test_a_folder_without_a_checkpoint_can_be_used_again(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")  # as a run leaves it that was killed early
    (tmp_path / "checkpoints").mkdir()
    assert rondel.train("ppo", "CartPole-v1", steps=300, out=tmp_path, eval_episodes=0, **PPO).path


def test_a_memory_that_does_not_fit_is_refused() -> None:
    with pytest.raises(RondelError, match="smaller capacity"):
        rondel.start("dqn", "CartPole-v1", steps=100, **DQN | {"capacity": 10**12})


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("lanes", 10**12, "A round would take .* fewer lanes"),
        ("rollout", 10**12, "A round would take"),
        ("hidden", (10**12,), "The learner would take .* a smaller network"),
        ("hidden", (10**6, 10**12), "The learner would take"),
        ("lanes", 10**13, "lanes must be at most 1,099,511,627,776, got 1e"),
        ("rollout", 10**400, "rollout must be at most 1,099,511,627,776, got 1e"),
        ("deadline", float("inf"), "deadline must be more than 0 .*, got inf"),
    ],
)
def test_numbers_beyond_all_sense_are_refused_at_once(field: str, value: Any, words: str) -> None:
    with pytest.raises(RondelError, match=words):
        rondel.start("ppo", "CartPole-v1", **PPO | {field: value})


class Heard(Display):
    def stop(self, message: str) -> None:
        self.message = message


def test_a_second_interrupt_is_no_failure(tmp_path: Path) -> None:
    def interrupt(run: Any, report: Any) -> None:
        raise KeyboardInterrupt

    heard = Heard()
    with pytest.raises(KeyboardInterrupt):
        rondel.train(
            "ppo", "probe:one", steps=500, out=tmp_path / "run", hooks=interrupt, display=heard
        )
    assert heard.message == f"Stopped at once, without saving; its folder is {tmp_path / 'run'}."
