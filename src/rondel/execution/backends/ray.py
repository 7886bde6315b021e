"""Every copy an actor of Ray: on this machine, or on the nodes of a cluster.

A promise is an object reference. It is handed on as such, so what a copy makes goes from its node
to the taker's node and never through the driver. Every call has one result more than the loop asks
for, which is nothing: it says that the call is over or how it failed, without what it made.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import logging
import os
import re
import time
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rondel.errors import RondelError
from rondel.execution.backend import Copy, Late, Lost, drives, envs_of, name_of, recipe
from rondel.execution.backends.actor import Worker, leaving, surroundings
from rondel.execution.backends.cluster import (
    Bundle,
    bundles_of,
    missing,
    refuse_if_nobody_listens,
    said,
    total,
)
from rondel.execution.backends.failure import Elsewhere, unpack
from rondel.execution.hosted import HostedLanes
from rondel.plan import Plan

try:
    import ray
    from ray import cloudpickle
    from ray.exceptions import ActorDiedError, GetTimeoutError, RayError, RayTaskError
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ImportError as absent:
    raise RondelError(
        f'To run on Ray, install it ({absent}): pip install "rondel[ray]"'
    ) from absent


_MOURNING = 2.0  # seconds to learn from Ray who died, where a copy has only missed another
_GRACE = 5.0  # seconds for copies to free what they hold, before they are killed


# in the driver


class _Call:
    """Something that a copy was asked for."""

    def __init__(self, copy: RayCopy, request: str, done: Any, inputs: tuple[_Call, ...]) -> None:
        self.copy, self.request, self.done, self.inputs = copy, request, done, inputs
        self.over = False


class Promise(NamedTuple):
    """One result of a call."""

    call: _Call
    ref: Any


class RayCopy:
    """A copy in an actor."""

    def __init__(self, name: str, actor: Any) -> None:
        from rondel.execution.fragment import RESULTS

        self.name, self.actor, self.results = name, actor, RESULTS
        self.process, self.node = 0, ""  # once they are known
        self.open: deque[_Call] = deque()  # calls that are not known to be over
        self._methods: dict[int, Any] = {}

    @property
    def id(self) -> str:
        return str(self.actor._actor_id.hex())

    def __str__(self) -> str:
        return f"{self.name} (process {self.process} on {self.node})" if self.node else self.name

    def call(self, request: str, *args: Any) -> Any:
        ready = (a if isinstance(a, Promise) else leaving(a) for a in args)
        promises = self.ask(request, *ready)
        return promises[0] if len(promises) == 1 else tuple(promises)

    def ask(self, request: str, *args: Any) -> list[Promise]:
        """The same, with arguments that may leave this process as they are."""
        n = self.results.get(request, 1)
        if n not in self._methods:
            self._methods[n] = self.actor.do.options(num_returns=n + 1)
        inputs = tuple(a.call for a in args if isinstance(a, Promise) and not a.call.over)
        sent = (a.ref if isinstance(a, Promise) else a for a in args)
        done, *refs = self._methods[n].remote(request, n, *sent)
        call = _Call(self, request, done, inputs)
        self.open.append(call)
        return [Promise(call, ref) for ref in refs]

    def settle(self, call: _Call) -> None:
        """A call is over, and so are those before it: a copy answers in order."""
        while not call.over:
            earlier = self.open.popleft()
            earlier.over, earlier.inputs = True, ()


class Ray:
    """The backend of Ray's actors.

    By default a cluster is started here for the run; `address` names one that runs already, as
    does RAY_ADDRESS, and a program that has called `ray.init` keeps what it has. `resources` says
    what a copy of each piece of the plan asks for: {"cpu": 1, "gpu": 1, "memory": bytes}, or names
    of the cluster's own; by default one CPU each. No call may take longer than `deadline` seconds.
    """

    def __init__(
        self,
        address: str | None = None,
        resources: Sequence[Mapping[str, float]] | None = None,
        deadline: float = 600.0,
    ) -> None:
        self._address, self._resources, self._deadline = address, resources, deadline
        self._copies: list[RayCopy] = []
        self._group: Any = None
        self._ours = False  # was Ray started here?

    def launch(self, task: Any, plan: Plan) -> list[list[Copy]]:
        bundles = bundles_of(plan, self._resources)
        recipes = _packed(task, plan)
        try:
            self._join_cluster(sum(map(len, bundles)))
            self._reserve(plan, bundles)
            pieces = self._start_actors(plan, bundles)
            self._make(recipes)
            if drives(plan):
                self._connect(plan, pieces)
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

    def _reserve(self, plan: Plan, bundles: list[list[Bundle]]) -> None:
        """Room for every copy, or a sentence of what is missing."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if lack := missing(plan, bundles, nodes):
            raise RondelError(lack)
        asked = [bundle for piece in bundles for bundle in piece if bundle]
        if not asked:
            return
        self._group = placement_group(asked, strategy="PACK")
        end = time.monotonic() + self._deadline
        while not self._group.wait(min(1.0, self._deadline)):  # short, so that Ctrl-C is heard
            if time.monotonic() > end:
                free = ray.available_resources()
                wants = total(asked)
                raise Late(
                    f"`{plan}` asks for {said(wants)}. The cluster has as much, but did not give "
                    f"it within {self._deadline:g} s: {said({k: free.get(k, 0) for k in wants})} "
                    "free now. It would start when others end, or with less: resources of cpu=0 "
                    "share cores."
                )

    def _start_actors(self, plan: Plan, bundles: list[list[Bundle]]) -> list[list[Any]]:
        worker = ray.remote(Worker)
        find_node = ray.util.get_node_ip_address
        pieces: list[list[Any]] = []
        place = 0
        for piece, asked in enumerate(bundles):
            pieces.append([])
            for i, bundle in enumerate(asked):
                own = {k: v for k, v in bundle.items() if k not in ("CPU", "GPU", "memory")}
                options: dict[str, Any] = {
                    "num_cpus": bundle.get("CPU", 0),
                    "num_gpus": bundle.get("GPU", 0),
                    "memory": bundle.get("memory"),
                    "resources": own,
                    "max_restarts": 0,
                    "max_task_retries": 0,
                }
                if bundle:
                    options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                        self._group, place, placement_group_capture_child_tasks=False
                    )
                    place += 1
                copy = RayCopy(name_of(plan, piece, i), worker.options(**options).remote(find_node))
                pieces[-1].append(copy)
                self._copies.append(copy)
        return pieces

    def _make(self, recipes: list[tuple[bool, bytes]]) -> None:
        like_here = surroundings()
        copies = list(zip(self._copies, recipes, strict=True))
        made = [copy.ask("make", copy.name, like_here, *packed)[0] for copy, packed in copies]
        self._listen([promise.call for promise in made], len(made))
        for copy, place in zip(self._copies, self._fetch([p.ref for p in made]), strict=True):
            copy.process, copy.node = place

    def _connect(self, plan: Plan, pieces: list[list[Any]]) -> None:
        patience = self._deadline / 2  # below the driver's own, so that the env is named
        numbers = self._fetch([env.ask("listen")[0].ref for env in pieces[0]])
        for i, policy in enumerate(pieces[1]):
            envs = {e: (str(pieces[0][e]), numbers[e]) for e in envs_of(plan, i)}
            policy.ask("connect", envs, patience)

    def get(self, promises: Sequence[Any]) -> list[Any]:
        from rondel.execution.task import to_device

        mine = [promise for promise in promises if isinstance(promise, Promise)]
        self._listen([promise.call for promise in mine], len(mine))
        values = iter(self._fetch([promise.ref for promise in mine]))
        # copied: what the store gives is read-only, and gone with the cluster
        return [to_device(next(values)) if isinstance(p, Promise) else p for p in promises]

    def wait(self, promises: Sequence[Any]) -> list[int]:
        mine = [promise for promise in promises if isinstance(promise, Promise)]
        if mine:
            self._listen([promise.call for promise in mine], 0 if len(mine) < len(promises) else 1)
        return [i for i, p in enumerate(promises) if not isinstance(p, Promise) or p.call.over]

    def _listen(self, wanted: Sequence[_Call], least: int) -> None:
        """Take in what is over, until at least so many of these are; raise what went wrong.

        The last call of each copy is listened to as well: it fails if the copy has failed.
        """
        heard = time.monotonic()
        while True:
            calls = [call for call in wanted if not call.over]
            enough = len(wanted) - len(calls) >= least
            calls += [copy.open[-1] for copy in self._copies if copy.open]
            by_done = {call.done: call for call in calls}
            if not by_done:
                return
            patience = 0.0 if enough else max(0.0, heard + self._deadline - time.monotonic())
            over = self._over(list(by_done), patience)
            for done in over:
                by_done[done].copy.settle(by_done[done])
            if enough:
                return
            if not over:
                raise Late(self._who_is_late())
            heard = time.monotonic()

    def _over(self, dones: list[Any], patience: float) -> list[Any]:
        """Which calls are over by then: at least one if any; raises if one of them failed."""
        over, more = ray.wait(dones, num_returns=1, timeout=patience, fetch_local=False)
        if over and more:
            over, _ = ray.wait(dones, num_returns=len(dones), timeout=0, fetch_local=False)
        self._fetch(over)
        return over

    def _fetch(self, refs: list[Any]) -> list[Any]:
        try:
            return ray.get(refs, timeout=self._deadline)
        except GetTimeoutError:
            problem: BaseException = Late(
                f"What was made did not come to the driver within {self._deadline:g} s: the "
                "network is slow, or a node is gone."
            )
        except RayError as error:
            fault = fault_in(error, {copy.id: str(copy) for copy in self._copies})
            problem = self._behind(fault)
        raise problem  # here, so that Ray's own error is not shown as its context

    def _behind(self, fault: Elsewhere | Lost) -> BaseException:
        """What to blame: where a copy only missed another one, what became of that."""
        error = unpack(fault.packed) if isinstance(fault, Elsewhere) else fault
        if not (isinstance(fault, Elsewhere) and isinstance(error, Lost)):
            return error
        names = {copy.id: str(copy) for copy in self._copies}
        end = time.monotonic() + _MOURNING
        alive = [copy.actor.__ray_ready__.remote() for copy in self._copies]
        while alive and (left := end - time.monotonic()) > 0:
            over, alive = ray.wait(alive, num_returns=1, timeout=left, fetch_local=False)
            for death in (_fault_of(ref, names) for ref in over):
                if isinstance(death, Lost):
                    return death
        return error

    def _who_is_late(self) -> str:
        """Those who have all that they need and still don't answer, not those who wait for them."""
        first = [copy.open[0] for copy in self._copies if copy.open]
        busy = [call for call in first if all(i.over for i in call.inputs)] or first
        said = ", ".join(f"{call.copy} with `{call.request}`" for call in busy)
        return (
            f"Nothing was heard for {self._deadline:g} s. Late: {said}. It hangs, or needs a "
            "longer deadline."
        )

    def close(self) -> None:
        """Let copies free what they hold, then end them, and Ray if it was started here."""
        copies, self._copies = self._copies, []
        group, self._group = self._group, None
        ours, self._ours = self._ours, False
        if not ray.is_initialized():
            return
        closed: list[Any] = []
        try:
            if copies:
                closing = [copy.actor.close.remote() for copy in copies]
                closed, _ = ray.wait(closing, num_returns=len(closing), timeout=_GRACE)
        finally:
            for copy in copies:
                ray.kill(copy.actor)
            if group is not None:
                remove_placement_group(group)
            faults = [_fault_of(ref, {}) for ref in closed]
            if ours:
                ray.shutdown()
        for fault in faults:
            if isinstance(fault, Elsewhere):  # the user's `close`; the dead have nothing to free
                raise unpack(fault.packed)


def start_here(**options: Any) -> None:
    """Start a cluster on this machine, quietly."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    join("local", include_dashboard=False, **options)


def join(address: str, **options: Any) -> None:
    """Become a driver of the cluster at an address."""
    refuse_if_nobody_listens(address)
    # A failure reaches the driver once; what else it spoiled on its way need not be told.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns of forks: what Ray forks only execs
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError, ImportError) as error:
        if address == "local":
            raise RondelError(f"Ray can't start here: {error}") from error
        raise RondelError(
            f"There is no Ray at {address}, or it wants a token that RAY_AUTH_TOKEN does not "
            f"give: {error}"
        ) from error


def _fault_of(ref: Any, names: Mapping[str, str]) -> Elsewhere | Lost | None:
    try:
        ray.get(ref)
    except RayError as error:
        return fault_in(error, names)
    return None


def _packed(task: Any, plan: Plan) -> list[tuple[bool, bytes]]:
    """How each copy is made, with whether that needs jax: functions and classes by value."""
    packed = []
    for piece, (_, copies) in enumerate(plan.pieces):
        for copy in range(copies):
            make, args = recipe(task, plan, piece, copy)
            try:
                packed.append((make is not HostedLanes, cloudpickle.dumps((make, args))))
            except Exception as error:
                raise RondelError(
                    f"{name_of(plan, piece, copy)} can't be sent to another process: {error}. An "
                    "environment or algorithm must not hold open files, locks or the like; one "
                    "that makes them itself, when it is made there, would work."
                ) from error
    return packed


# what went wrong, on its way to the driver


def fault_in(error: RayError, names: Mapping[str, str]) -> Elsewhere | Lost:
    """What is behind an error of Ray's; `names` are what people call the actors, by id."""
    cause: Any = error
    while isinstance(cause, RayTaskError):
        cause = cause.cause
    if isinstance(cause, Elsewhere):
        return cause
    if isinstance(cause, ActorDiedError):
        who = names.get(cause.actor_id, "an actor")
        return Lost(f"{who} died: {_reason(str(cause))}")
    return Lost(f"Ray failed: {cause}")


def _reason(text: str) -> str:
    """The part of Ray's page about a dead actor that says why."""
    because = re.search(r"The actor is dead because (.*)", text, re.DOTALL)
    said = (because[1] if because else text).partition("Some common causes include")[0].strip()
    return re.sub(r"Worker exit type: \w+ Worker exit detail: ", "", said)
