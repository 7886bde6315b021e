"""Every copy an actor of Ray: on this machine, or on the nodes of a cluster.

A promise is an object reference. It is handed on as such, so what a copy makes goes from its node
to the taker's node. Only what must outlive a node passes through the driver, if copies may be
restarted: states, and results that are still needed when states are kept. Every call has one result
more than the loop asks for, a receipt: it says that the call is over or how it failed, without what
it made.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rondel.errors import RondelError
from rondel.execution.backends.protocol import Copy, Unresponsive, worker_factory
from rondel.execution.backends.ray.connect import is_client, join, start_here
from rondel.execution.backends.ray.elastic import Ranges
from rondel.execution.backends.ray.errors import fault_in, fault_of, outcome_of
from rondel.execution.backends.ray.liveness import Liveness, Unwatched, raises_if_node_is_gone
from rondel.execution.backends.ray.lost_objects import bring_here
from rondel.execution.backends.ray.pending_calls import PendingCall, Promise
from rondel.execution.backends.ray.placement_groups import PlacementGroups
from rondel.execution.backends.ray.proxy import RayProxy
from rondel.execution.backends.ray.resources import Bundle, bundles_of, missing, said, total
from rondel.execution.backends.recovery.request_log import Redo, RequestLog
from rondel.execution.backends.wire.remote_errors import Elsewhere, unpack
from rondel.execution.hostenv.host_envs import HostEnvs
from rondel.execution.requests import CONNECT, LISTEN
from rondel.execution.telemetry.timeouts import timeouts_for
from rondel.plan.plan import Plan, copy_name, env_copies_of, has_separate_envs

_GRACE = 5.0  # seconds for copies to free what they hold, before they are killed


class Ray(Ranges):
    """The backend of Ray's actors.

    By default a cluster is started here for the run; `address` names one that runs already, as
    does RAY_ADDRESS, and a program that has called `ray.init` keeps what it has. `resources` says
    what a copy of each piece of the plan asks for: {"cpu": 1, "gpu": 1, "memory": bytes}, or names
    of the cluster's own; by default one CPU each. A call may take `deadline` seconds, and twice
    that if it waits for environments elsewhere; the first of its kind, and to start, at least
    a minute.
    `restarts`: how often a copy that died or hangs may be started again without getting any
    further; 0 ends the run instead.
    """

    def __init__(
        self,
        address: str | None = None,
        resources: Sequence[Mapping[str, float]] | None = None,
        deadline: float = 600.0,
        restarts: int = 0,
    ) -> None:
        super().__init__(deadline, restarts)
        self._address, self._resources = address, resources
        self._group: Any = None
        self._ours = False  # was Ray started here?
        self._sent = 0  # calls, ever

    def launch(self, task: Any, plan: Plan) -> list[list[Copy]]:
        bundles = bundles_of(plan, self._resources)
        recipes = _packed(task, plan)
        self._plan, self._redo = plan, Redo(plan, task)
        if has_separate_envs(plan):  # time for a policy to tell which of its environments is late
            self._patience = self._patience.twice()
        try:
            least = [piece[: plan.pieces[i].least] for i, piece in enumerate(bundles)]
            self._join_cluster(sum(map(len, least)))
            self.liveness = Unwatched() if is_client() else Liveness()
            self._reserve(plan, bundles, least)
            pieces = self._make_copies(plan, bundles, recipes)
            self._start_until_all_are_there(self._copies)
        except BaseException:
            self.close()
            raise
        return pieces

    def _join_cluster(self, copies: int) -> None:
        if ray.is_initialized():
            return
        address = self._address or os.environ.get("RAY_ADDRESS") or "local"
        if address != "local":
            join(address)
        elif self._resources is None:  # copies may share cores, as processes do
            start_here(num_cpus=max(copies, len(os.sched_getaffinity(0))))
        else:
            start_here()
        self._ours = True

    def _reserve(self, plan: Plan, bundles: list[list[Bundle]], least: list[list[Bundle]]) -> None:
        """Room for every copy, of a range for the least of them, or a sentence of what is missing.

        The rest of a range will have some when there is some.
        """
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if lack := missing(plan, least, nodes):
            raise RondelError(lack)
        ranged = [i for i, piece in enumerate(plan.pieces) if piece.least is not None]
        fixed = [b for i, piece in enumerate(bundles) if i not in ranged for b in piece if b]
        if fixed:
            self._group = placement_group(fixed, strategy="PACK")
        few = sum(len(least[i]) for i in ranged)
        seconds = self._patience.first
        end = time.monotonic() + seconds
        while not self._is_reserved([b for i in ranged for b in bundles[i]], few):
            if time.monotonic() > end:
                free = ray.available_resources()
                wants = total([bundle for piece in least for bundle in piece])
                raise Unresponsive(
                    f"`{plan}` asks for {said(wants)}. The cluster has as much, but did not give "
                    f"it within {seconds:g} s: {said({k: free.get(k, 0) for k in wants})} "
                    "free now. It would start when others end, or with less: resources of cpu=0 "
                    "share cores."
                )

    def _is_reserved(self, ranged: list[Bundle], few: int) -> bool:
        """Is there room for all that must be there? It waits a little.

        Copies of a range get theirs after all others, lest they take it from them.
        """
        patience = min(1.0, self._deadline)  # short, so that Ctrl-C is heard
        if self._group is not None and not self._group.wait(patience):
            return False
        if ranged and self._rooms is None:
            self._rooms = PlacementGroups(ranged)
        if self._rooms is None or len(self._rooms.open(now=True)) >= few:
            return True
        time.sleep(min(0.1, patience))
        return False

    def _make_copies(
        self, plan: Plan, bundles: list[list[Bundle]], recipes: list[tuple[bool, bytes]]
    ) -> list[list[Any]]:
        pieces: list[list[Any]] = []
        bundle_number = 0
        packed = iter(recipes)
        for piece, asked in enumerate(bundles):
            pieces.append([])
            driven = has_separate_envs(plan) and piece == 0
            for i, bundle in enumerate(asked):
                own = {k: v for k, v in bundle.items() if k not in ("CPU", "GPU", "memory")}
                copy = RayProxy(self, (piece, i), copy_name(plan, piece, i))
                copy.recipe = next(packed)
                copy.journal = RequestLog(is_kept=self._restarts > 0 and not driven, reads=True)
                copy.options = {
                    "num_cpus": bundle.get("CPU", 0),
                    "num_gpus": bundle.get("GPU", 0),
                    "memory": bundle.get("memory"),
                    "resources": own,
                    "max_restarts": 0,
                    "max_task_retries": 0,
                }
                pieces[-1].append(copy)
                if self._rooms is not None and plan.pieces[piece].least is not None:
                    self._slots.append(copy)
                    copy.options["scheduling_strategy"] = self._rooms.strategy(i)
                    if i not in self._rooms.open():
                        continue  # it comes when there is room
                elif bundle:
                    copy.options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                        self._group, bundle_number, placement_group_capture_child_tasks=False
                    )
                    bundle_number += 1
                self._copies.append(copy)
        return pieces

    def _start(self, copies: list[RayProxy]) -> None:
        """An actor for each copy, with lines between policies and environments."""
        made = self._begin_somewhere(copies)
        for copy, arrived in zip(copies, self._fetch(made), strict=True):
            copy.arrive(arrived)
        if has_separate_envs(self._plan):
            self._connect(copies)

    def _connect(self, copies: list[RayProxy]) -> None:
        with_envs = timeouts_for(self._deadline)  # below the driver's own, so that the env is named
        policy_piece = self._plan.pieces.index(self._plan.piece_of("policy"))
        envs = [copy for copy in copies if copy.place[0] == 0]
        numbers = self._fetch([env.ask(LISTEN)[0] for env in envs])
        at = {e.place[1]: (str(e), number) for e, number in zip(envs, numbers, strict=True)}
        for policy in copies:
            if policy.place[0] == policy_piece:
                mine = {e: at[e] for e in env_copies_of(self._plan, policy.place[1])}
                policy.ask(CONNECT, mine, with_envs)

    def next_order(self) -> int:
        """A number for a call, in the order of sending."""
        self._sent += 1
        return self._sent

    @raises_if_node_is_gone
    def get(self, promises: Sequence[Any]) -> list[Any]:
        from rondel.execution.stages.task import to_device

        mine = [promise for promise in promises if isinstance(promise, Promise)]
        while True:
            self._listen(mine, len(mine))
            try:
                values = iter(ray.get([p.ref for p in mine], timeout=self._deadline))
                break
            except GetTimeoutError:
                problem = self._not_come()
            except RayError as error:  # what was made is lost, with the node that had it
                self._recover({None: error}, mine)
                continue
            raise problem
        # copied: what the store gives is read-only, and gone with the cluster
        return [to_device(next(values)) if isinstance(p, Promise) else p for p in promises]

    @raises_if_node_is_gone
    def wait(self, promises: Sequence[Any]) -> list[int]:
        mine = [promise for promise in promises if isinstance(promise, Promise)]
        if mine:
            self._listen(mine, 0 if len(mine) < len(promises) else 1)
        return [i for i, p in enumerate(promises) if not isinstance(p, Promise) or p.call.over]

    def _listen(self, wanted: Sequence[Promise], least: int) -> None:
        """Take in what is over, until at least so many of these are; raise what went wrong.

        The last call of each copy is listened to as well: it fails if the copy has failed.
        """
        while True:
            calls = [promise.call for promise in wanted if not promise.call.over]
            enough = len(wanted) - len(calls) >= least
            calls += [copy.open[-1] for copy in self._copies if copy.open]
            by_done = {call.done: call for call in calls}
            if not by_done:
                return
            over = self._over(list(by_done), 0.0 if enough else min(1.0, self._deadline))
            errors: dict[PendingCall | None, RayError] = {}
            for done in over:
                call, outcome = by_done[done], outcome_of(done)
                if isinstance(outcome, RayError):
                    errors[call] = outcome
                elif not call.over:
                    call.copy.settle(call)
                    self._keeper.count(call.copy.took(outcome))
                    self._missed = None
            if errors:
                self._recover(errors)
            elif enough:
                return
            elif not over:
                self._watch()

    def _over(self, dones: list[Any], patience: float) -> list[Any]:
        """Which calls are over by then: at least one if any."""
        over, more = ray.wait(dones, num_returns=1, timeout=patience, fetch_local=False)
        if over and more:
            over, _ = ray.wait(dones, num_returns=len(dones), timeout=0, fetch_local=False)
        return list(over)

    def _fetch(self, promises: list[Promise]) -> list[Any]:
        """What copies that were just started answer; nothing is mended here."""
        end = time.monotonic() + self._patience.first
        self._await([promise.call.done for promise in promises], end)
        try:
            left = max(0.0, end - time.monotonic())
            values = ray.get([promise.ref for promise in promises], timeout=left)
        except GetTimeoutError:
            problem: BaseException = Unresponsive(self._who_is_late(self._patience.first))
        except RayError as error:
            problem = self._behind(fault_in(error, self._names()))
        else:
            for promise in promises:
                promise.call.copy.settle(promise.call)
            return values
        raise problem  # here, so that Ray's own error is not shown as its context

    def _await(self, dones: list[Any], end: float) -> None:
        """Wait until calls are over, or one has failed, or it is too late."""
        while dones and (left := end - time.monotonic()) > 0:
            over, dones = ray.wait(dones, timeout=min(1.0, left), fetch_local=False)
            if any(isinstance(outcome_of(done), RayError) for done in over):
                return
            self.liveness.look()

    def _not_come(self) -> Unresponsive:
        return Unresponsive(
            f"What was made did not come to the driver within {self._deadline:g} s: the network is "
            "slow, or a node is gone."
        )

    @raises_if_node_is_gone
    def settled(self, now: bool = False) -> None:
        """The ring is between two rounds: keep what copies are, if it is time to."""
        self.liveness.look()
        if self._restarts == 0:
            return
        self._outages.look()
        urgent = self._keeper.ask_if_due([c for c in self._copies if c.arrival is None], now)
        if urgent:
            self._listen(self._keeper.states, len(self._keeper.states))
        states = self._keeper.states
        if not states or not all(promise.call.over for promise in states):
            return
        refs = [promise.ref for promise in states]
        patience = self._deadline if urgent else 0.0  # else they come while the run goes on
        here, _ = ray.wait(refs, num_returns=len(refs), timeout=patience, fetch_local=True)
        if len(here) < len(refs):
            if urgent:
                raise self._not_come()
            return
        began = time.monotonic()
        try:
            flags = ray.get([flag.ref for flag in self._keeper.flags], timeout=self._deadline)
            older = [made for copy in self._copies for made in copy.journal.made_until_kept()]
            needed = [promise for made in older if (promise := made())]
            bring_here([*states, *needed], self._deadline)
        except RayError:  # lost on their way, or late: journals still have all of it
            self._keeper.abandon()
            return
        self._keeper.take(flags)
        spent = time.monotonic() - began
        self._keeper.took(spent + max(copy.keeping for copy in self._copies))

    def close(self) -> None:
        """Let copies free what they hold, then end them, and Ray if it was started here."""
        copies, self._copies = [c for c in self._copies if c.actor is not None], []
        self._keeper.abandon()
        group, self._group = self._group, None
        rooms, self._rooms, self._slots = self._rooms, None, []
        ours, self._ours = self._ours, False
        liveness, self.liveness = self.liveness, Unwatched()
        if not ray.is_initialized():
            return
        if liveness.node_is_gone:  # its actors went with it, and those elsewhere because of it
            copies, group, rooms = [], None, None
        closed: list[Any] = []
        try:
            if copies:
                closing = [copy.actor.close.remote() for copy in copies]
                closed, _ = ray.wait(closing, num_returns=len(closing), timeout=_GRACE)
        finally:
            if liveness.head_is_gone:  # who else would end them is not there
                for copy in copies:
                    copy.actor.end.remote()
            else:
                for copy in copies:
                    ray.kill(copy.actor)
                if group is not None:
                    remove_placement_group(group)
                if rooms is not None:
                    rooms.close()
            faults = [fault_of(ref, {}) for ref in closed]
            if ours:
                ray.shutdown()
        for fault in faults:
            if isinstance(fault, Elsewhere):  # the user's `close`; the dead have nothing to free
                raise unpack(fault.packed)


def _packed(task: Any, plan: Plan) -> list[tuple[bool, bytes]]:
    """How each copy is made, with whether that needs jax: functions and classes by value."""
    packed = []
    for piece, (_, copies, _) in enumerate(plan.pieces):
        for copy in range(copies):
            make, args = worker_factory(task, plan, piece, copy)
            try:
                packed.append((make is not HostEnvs, cloudpickle.dumps((make, args))))
            except Exception as error:
                raise RondelError(
                    f"{copy_name(plan, piece, copy)} can't be sent to another process: {error}. An "
                    "environment or algorithm must not hold open files, locks or the like; one "
                    "that makes them itself, when it is made there, would work."
                ) from error
    return packed
