"""The worker of a copy: the states of neighbouring stages, and the requests that it answers.

Each request runs one XLA program or none, except `produce` over environments outside the program,
which is a Python loop around one. What the next request to the same worker needs stays inside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rondel.errors import RondelError
from rondel.execution.hostenv.crash_record import Recorder
from rondel.execution.hostenv.host_envs import DirectEnvClient, EnvClient, HostEnvs
from rondel.execution.hostenv.partition import EVERYTHING, LaneShare, groups, lanes_of, phases
from rondel.execution.stages.episode_stats import RecentEpisodes
from rondel.execution.stages.peers import GradientContribution
from rondel.execution.stages.round import Round, State
from rondel.execution.stages.rows import Lanes, Row
from rondel.execution.stages.task import (
    Task,
    bytes_of,
    check_fits_in_memory,
    concat_lanes,
    keeps_state,
    on_device,
    take_share,
    with_keys,
    without_keys,
)
from rondel.execution.telemetry.timing import Metered, ready
from rondel.execution.workers.host_rollout import EnvClients, LaneGroup
from rondel.execution.workers.programs import Programs, compile_programs
from rondel.plan.plan import Plan
from rondel.types import Env, Tree

_LEARNER = {"memory", "gradient", "update"}  # together they learn in one program


class StageWorker(Metered):
    """One copy of a piece of the plan, or the whole ring on several devices."""

    def __init__(
        self, task: Task, plan: Plan, piece: int, copy: int, programs: Programs | None = None
    ) -> None:
        """`programs` are by default those of this copy alone, on one device."""
        self.task, self.plan = task, plan
        self.stages = plan.pieces[piece].stages
        self.copy, self.copies = copy, plan.pieces[piece].copies
        self.labels = bool(task.algorithm.label) and plan.piece_of("label") == plan.pieces[piece]
        self.seed = np.uint32(task.seed)
        self._own_lanes = task.lanes // self.copies
        self.programs = programs or compile_programs(task, self._own_lanes, (copy, self.copies))
        self._learns = self.copies == 1 and _LEARNER.issubset(self.stages)
        self.learner: Tree = ()
        self.memory: Tree = ()
        self.env: Tree = ()
        self.step: Tree = None  # a Step, once the environment has started
        self.lanes: Tree = ()  # Lanes, where the policy is
        self.links: dict[int, EnvClient] = {}  # to env copies outside of the program
        self._hosted: HostEnvs | None = None
        self._made: deque[Tree] = deque()  # items that wait for `add`
        self._ticket: Tree = ()
        self._known: Tree = ()  # the learner's variables for the labels of this round
        self._contribution: GradientContribution | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        """The state of each stage before round 0, except environments elsewhere."""
        task, plan, run = self.task, self.plan, self.programs
        first = self.copy * self._own_lanes
        self.lane: Tree = jax.device_put(np.arange(first, first + self._own_lanes, dtype=np.int32))
        if "update" in self.stages:
            self.learner = run.init_learner(self.seed)
        if "policy" in self.stages:
            self.lanes = run.init_lanes(self.lane)
        if "memory" in self.stages:
            check_fits_in_memory(run.memories * bytes_of(jax.eval_shape(run.init_memory)))
            self.memory = run.init_memory()
        if "env" in self.stages and not isinstance(task.env, Env):
            mine = groups(plan, task.lanes, task.block, self.copy)
            self._hosted = HostEnvs(task.env, task.seed, mine)
            self.connect({self.copy: DirectEnvClient(self._hosted)})
        for name in ("learner", "lanes", "memory"):
            setattr(self, name, run.place(name, getattr(self, name)))

    def connect(self, links: Mapping[int, EnvClient]) -> None:
        """Use these links to environments outside of the program, here or elsewhere."""
        self.links = dict(links)
        self.phases = phases(self.plan, self.task.lanes, self.task.block, self.copy)
        self._lanes_of_phases = [jax.device_put(lanes_of(phase)) for phase in self.phases]

    # env and policy

    def begin(self, episode: int = 0) -> None:
        """Begin an episode in every lane, a different one for each number `episode`."""
        if self.links:
            self.step = self._driven().reset(episode)
        else:
            self._free_lanes()
            env, step = self.programs.first_step(self.seed, self.lane, episode)
            place = self.programs.place
            self.env, self.step = place("env", env), place("step", step)

    def _driven(self) -> EnvClients:
        return EnvClients(self.links, self.phases, self._hosted is not None, self.meter)

    def produce(self, weights: Tree, round: int) -> tuple[Tree, Tree, Tree]:
        """A round's experience with these weights: (items, summary, outcome)."""
        if self.links:
            items, summary, outcome = self._produce_by_links(weights, round)
        else:
            self.env, self.step, self.lanes, (items, summary, outcome) = self.programs.rollout(
                self.seed, weights, self.env, self.step, self.lanes, self.lane, round
            )
        if "memory" not in self.stages:
            return items, summary, outcome
        self._made.append(items)
        return None, summary, outcome

    def _produce_by_links(self, weights: Tree, round: int) -> tuple[Tree, Tree, Tree]:
        """Step the environments of one phase while the policy acts for the other."""
        weights = on_device(weights)  # once, not in every step
        driven = self._driven()
        if self.task.algorithm.fresh:
            self.step = driven.reset(round)
        starts = self.task.algorithm.start is not None  # an empty program takes time, too
        own = self.programs.start_round(self.seed, weights, round, self.lane) if starts else ()
        keys = self.programs.act_keys(self.seed, round, self.lane)
        begun = (self.lanes.carry, own, self.step)
        halves = [
            LaneGroup(driven, phase, self.programs.act, lane, keys, begun)
            for phase, lane in zip(self.phases, self._lanes_of_phases, strict=True)
        ]
        for t in range(self.task.algorithm.rollout):
            if t < 2:
                marks = driven.marks(t)
            for half in halves:
                half.act(weights, t, marks)
        rows, outcome = concat_lanes([half.finish() for half in halves], axis=1)
        self._refuse_non_finite(rows)
        step = concat_lanes([half.buffer.last() for half in halves])
        items, summary, tail = self.programs.items(weights, self.lanes.tail, rows, step, self.lane)
        self.step, self.lanes = step, Lanes(concat_lanes([half.carry for half in halves]), tail)
        return items, summary, jax.tree.map(np.transpose, outcome)

    def _refuse_non_finite(self, rows: Row) -> None:
        """Name an environment that gives NaN: in a loss it would look like the learner's fault."""
        for name, tree in (("observations", rows.obs), ("rewards", rows.reward)):
            for leaf in jax.tree.leaves(tree):
                if np.issubdtype(leaf.dtype, np.floating) and not np.isfinite(leaf).all():
                    lane = int(self.lane[np.argwhere(~np.isfinite(leaf))[0][1]])
                    raise RondelError(
                        f"{name} must be finite, but {self.task.env.spec.id} gave infinity or NaN "
                        f"in lane {lane}. Check its reset and step."
                    )

    # memory

    def add(self, round: int, share: LaneShare = EVERYTHING, *items: Tree) -> None:
        """Add a round's items to memory: those received, or those made here."""
        mine = take_share(share, items) if items else self._made.popleft()
        self.memory = self.programs.add(self.seed, self.memory, mine, round)
        self._wait_for(self.memory)

    def _wait_for(self, state: Tree) -> None:
        """Wait until the state is computed, unless `learn` follows, which waits anyway."""
        if not self._learns:
            jax.block_until_ready(state)  # type: ignore[no-untyped-call]

    def draw(self, round: int, j: int) -> Tree:
        """The j-th batch of the round; its ticket stays here."""
        batch, self._ticket = self.programs.draw(self.seed, self.memory, round, j)
        return batch

    def rank(self, share: LaneShare, *feedback: Tree) -> None:
        """Give memory the feedback on the batch drawn last."""
        self.memory = ready(
            self.programs.rank(self.memory, self._ticket, take_share(share, feedback))
        )

    # label and gradient

    def set_label_variables(self, variables: Tree) -> None:
        """Receive the variables that labels need from a learner elsewhere."""
        self._known = variables

    def label(self, round: int, j: int, share: LaneShare = EVERYTHING, *batches: Tree) -> Tree:
        """The j-th batch, labelled if this copy has the stage `label`."""
        batch = take_share(share, batches) if batches else self.draw(round, j)
        if not self.labels:
            return batch
        return self.programs.label(self.seed, self._known, batch, round, j)

    def gradient(
        self,
        round: int,
        j: int,
        variables: Tree = None,
        share: LaneShare = EVERYTHING,
        *batches: Tree,
    ) -> tuple[Tree, GradientContribution | None]:
        """(feedback, contribution) of the j-th batch; what is not received is made here."""
        batch = self.label(round, j, share, *batches)
        variables = self.learning() if variables is None else variables
        feedback, contribution = self.programs.gradient(self.seed, variables, batch, round, j)
        if "memory" in self.stages:
            self.memory = self.programs.rank(self.memory, self._ticket, feedback)
            feedback = None
        if "update" in self.stages and self.copies == 1:
            self._contribution, contribution = contribution, None
        return feedback, contribution

    # update

    def absorb(self, *summaries: Tree) -> None:
        """Take the round's summaries of all lanes into the learner's state."""
        self.learner = self.programs.absorb(self.learner, concat_lanes(summaries))
        self._wait_for(self.learner)
        if self.labels:
            self.set_label_variables(self.learning())

    def update(self, *contributions: GradientContribution) -> dict[str, Any]:
        """One optimiser step with the mean of all copies' gradients -> its metrics."""
        grads, metrics = self.programs.average(contributions or (self._contribution,))
        self.learner = ready(self.programs.update(self.learner, grads))
        return metrics

    def learning(self) -> Tree:
        """The variables that gradients and labels need of the learner."""
        return self.programs.learning(self.learner)

    def acting(self) -> Tree:
        """The weights that the policy needs of the learner."""
        return self.programs.acting(self.learner)

    # memory, gradient and update together

    def learn(self, round: int) -> dict[str, Any]:
        """Run all draws of a round in one program -> their metrics."""
        self.learner, self.memory, metrics = self.programs.learn(
            self.seed, self.learner, self.memory, round
        )
        return metrics

    # all stages over a traceable environment together

    def compute_rounds(
        self, recent: RecentEpisodes, round: int, rounds: int, steps_left: int, until_return: float
    ) -> tuple[RecentEpisodes, list[Round]]:
        """Run up to `rounds` rounds in one program, up to a limit; see `fused`."""
        state = State(self.learner, self.env, self.step, self.lanes, recent)
        state, self.memory, reports, n = self.programs.compute_rounds(
            self.seed, state, self.memory, self.lane, round, rounds, steps_left, until_return
        )
        self.learner, self.env, self.step, self.lanes, recent = state
        reports, recent = jax.tree.map(np.asarray, (reports, recent))
        return recent, [jax.tree.map(lambda x, i=i: x[i], reports) for i in range(int(n))]

    # state

    def snapshot(self, *names: str) -> dict[str, Tree]:
        """The states with these names, or all; random keys as plain numbers."""
        parts: dict[str, Tree] = {}
        if "update" in self.stages:
            parts["learner"] = self.learner
        if "policy" in self.stages:
            parts |= {"lanes": self.lanes, "step": self.step, "made": tuple(self._made)}
        if "policy" in self.stages and keeps_state(self.task.env) and (not names or "env" in names):
            parts["env"] = self._driven().states() if self.links else self.env
        if "memory" in self.stages:
            parts["memory"] = self.memory
        export = self.programs.export
        return {k: export(k, without_keys(v)) for k, v in parts.items() if not names or k in names}

    def restore(self, parts: dict[str, Tree]) -> None:
        """Continue from a snapshot, or from some of its states."""
        made = parts.pop("made", ())
        self._made = deque(made if "memory" in self.stages else ())
        if self.links and "env" in parts:
            self._driven().set_states(parts.pop("env"))
        for name, tree in parts.items():
            tree = jax.tree.map(jnp.array, self.programs.load(name, tree))
            tree = with_keys(getattr(self, name), tree)
            setattr(self, name, self.programs.place(name, tree))

    def keep(self, most_bytes: int) -> tuple[bool, dict[str, Tree]]:
        """The snapshot from which a replacement can start; False and nothing if it is too large."""
        parts = self.snapshot()
        fits = sum(x.nbytes for x in jax.tree.leaves(parts)) <= most_bytes
        return fits, parts if fits else {}

    def take_over(self, parts: dict[str, Tree], episode: int) -> None:
        """Restore a snapshot of `keep`. Environments that can't be saved begin new episodes."""
        if "policy" in self.stages:
            self.begin(episode)
            if not keeps_state(self.task.env):
                parts.pop("step", None)
        self.restore(parts)
        if "policy" in self.stages and not keeps_state(self.task.env):
            self._forget_tail()

    def record(self, recorder: Recorder) -> None:
        """Log each call of the environments here before it is made."""
        if self._hosted is not None:
            self._hosted.record(recorder)

    def begin_again(self, episode: int) -> None:
        """Begin new episodes, to which the last rows of the lanes do not lead."""
        self.begin(episode)
        self._forget_tail()

    def _forget_tail(self) -> None:
        gone = self.lanes.tail._replace(valid=jnp.zeros_like(self.lanes.tail.valid))
        self.lanes = self.lanes._replace(tail=gone)

    def close(self) -> None:
        """Free what the environments hold."""
        self._free_lanes()
        if self._hosted is not None:
            self._hosted.close()

    def _free_lanes(self) -> None:
        """Free the lanes of a traceable environment whose state is outside of JAX."""
        env, state, self.env = self.task.env, self.env, ()
        if isinstance(env, Env) and env.close is not None and state:
            env.close(state)
