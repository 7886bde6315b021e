"""Every copy an actor of Ray: on this machine, or on the nodes of a cluster.

A promise is an object reference. It is handed on as such, so what a copy makes goes from its node
to the taker's node and never through the driver. Every call has one result more than the loop asks
for, which is nothing: it says that the call is over or how it failed, without what it made.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import logging
import os
import pickle
import re
import sys
import time
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from rondel.errors import RondelError
from rondel.execution.backend import Copy, Late, Lost, drives, envs_of, name_of, recipe
from rondel.execution.backends.failure import Elsewhere, pack, unpack
from rondel.execution.backends.line import Exchange, Number, SocketLink
from rondel.execution.hosted import HostedLanes
from rondel.execution.layout import Share
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

Bundle: TypeAlias = dict[str, float]  # what a copy asks for, by Ray's names

_RAYS_NAMES = {"cpu": "CPU", "gpu": "GPU"}  # others are the same
_GRACE = 5.0  # seconds for copies to free what they hold, before they are killed
_OWN = ("make", "listen", "connect")  # requests to the worker itself, not to its fragment
# What a process sets before JAX starts, and what a run's last bits depend on.
_SETTINGS = re.compile(r"(JAX|XLA)_\w+|NPROC|XDG_CACHE_HOME")


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
        promises = self.ask(request, *map(_leaving, args))
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
                wants = _total(asked)
                raise Late(
                    f"`{plan}` asks for {_said(wants)}. The cluster has as much, but did not give "
                    f"it within {self._deadline:g} s: {_said({k: free.get(k, 0) for k in wants})} "
                    "free now. It would start when others end, or with less: resources of cpu=0 "
                    "share cores."
                )

    def _start_actors(self, plan: Plan, bundles: list[list[Bundle]]) -> list[list[Any]]:
        worker = ray.remote(Worker)
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
                copy = RayCopy(name_of(plan, piece, i), worker.options(**options).remote())
                pieces[-1].append(copy)
                self._copies.append(copy)
        return pieces

    def _make(self, recipes: list[tuple[bool, bytes]]) -> None:
        surroundings = _surroundings()
        copies = list(zip(self._copies, recipes, strict=True))
        made = [copy.ask("make", copy.name, surroundings, *packed)[0] for copy, packed in copies]
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
            problem = unpack(fault.packed) if isinstance(fault, Elsewhere) else fault
        raise problem  # here, so that Ray's own error is not shown as its context

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
            faults = [_fault_of(ref) for ref in closed]
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


def _fault_of(ref: Any) -> BaseException | None:
    try:
        ray.get(ref)
    except RayError as error:
        return fault_in(error, {})
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


def _surroundings() -> dict[str, Any]:
    """What makes other processes like this one: where modules are, how JAX is set."""
    import jax

    return {
        "environ": {k: v for k, v in os.environ.items() if _SETTINGS.fullmatch(k)},
        "path": [os.path.abspath(entry) for entry in sys.path],
        "folder": os.getcwd(),
        "config": pickle.dumps(jax.config.values),  # to unpickle its types imports jax
    }


# what is asked of a cluster


def bundles_of(plan: Plan, resources: Sequence[Mapping[str, float]] | None) -> list[list[Bundle]]:
    """What every copy of every piece asks for; nothing where it asks for 0."""
    if resources is None:
        resources = [{} for _ in plan.pieces]
    if len(resources) != len(plan.pieces):
        raise RondelError(
            f"resources are given for {len(resources)} pieces, and `{plan}` has "
            f"{len(plan.pieces)}: one mapping for each, such as {{'cpu': 1}}, would work."
        )
    pieces = []
    for piece, given in zip(plan.pieces, resources, strict=True):
        if bad := [f"{name}={amount}" for name, amount in given.items() if not amount >= 0]:
            raise RondelError(f"{piece.name} can't ask for {bad[0]}: 0 or more would work.")
        amounts = {_RAYS_NAMES.get(k, k): v for k, v in ({"cpu": 1} | dict(given)).items()}
        bundle = {k: int(v) if k == "memory" else float(v) for k, v in amounts.items() if v}
        pieces.append([bundle] * piece.copies)
    return pieces


def missing(
    plan: Plan, bundles: Sequence[Sequence[Bundle]], nodes: Sequence[Mapping[str, float]]
) -> str | None:
    """What a plan asks for that a cluster of these nodes does not have, in a sentence."""
    asked, there = _total([b for piece in bundles for b in piece]), _total(nodes)
    short = {name: there.get(name, 0.0) for name in asked if asked[name] > there.get(name, 0.0)}
    way = "fewer copies, more nodes, or resources of less (cpu=0 shares cores) would work."
    if short:
        wants = _said({name: asked[name] for name in short})
        return f"`{plan}` asks for {wants}, and the cluster has {_said(short)}: {way}"
    for piece, (bundle, *_) in zip(plan.pieces, bundles, strict=True):
        if not any(all(node.get(k, 0.0) >= v for k, v in bundle.items()) for node in nodes):
            most = {k: max(node.get(k, 0.0) for node in nodes) for k in bundle}
            return (
                f"A copy of {piece.name} asks for {_said(bundle)}, and no node has that: the most "
                f"that one has is {_said(most)}; {way}"
            )
    return None


def _total(amounts: Sequence[Mapping[str, float]]) -> Bundle:
    names = dict.fromkeys(name for each in amounts for name in each)
    return {name: sum(each.get(name, 0.0) for each in amounts) for name in names}


def _said(amounts: Mapping[str, float]) -> str:
    parts = []
    for name, amount in amounts.items():
        in_bytes = name == "memory"
        parts.append(f"{amount / 2**30:.3g} GiB of memory" if in_bytes else f"{amount:g} {name}")
    return ", ".join(parts)


# in the actors


class Worker:
    """The actor: it holds a fragment and does what is asked of it. It imports no jax by itself."""

    def __init__(self) -> None:
        self._name = ""
        self._fragment: Any = None
        self._jax = False
        self._failure: Elsewhere | None = None
        self._exchange: Exchange | None = None

    def make(
        self, name: str, surroundings: dict[str, Any], needs_jax: bool, packed: bytes
    ) -> tuple[int, str]:
        """Make the fragment, in surroundings like the driver's -> (process, node)."""
        self._name, self._jax = name, needs_jax
        os.environ.update(surroundings["environ"])
        sys.path += [entry for entry in surroundings["path"] if entry not in sys.path]
        with suppress(OSError):  # another machine may not have it
            os.chdir(surroundings["folder"])
        if needs_jax:
            _configure(surroundings["config"])
        make, args = pickle.loads(packed)
        if "jax" in sys.modules:  # an environment may use it by itself
            _configure(surroundings["config"])
        self._fragment = make(*args)
        return os.getpid(), ray.util.get_node_ip_address()

    def listen(self) -> Number:
        """Let policies call the environments that are here."""
        self._exchange = Exchange(ray.util.get_node_ip_address(), self.ask)
        return self._exchange.number

    def connect(self, envs: Mapping[int, tuple[str, Number]], patience: float) -> None:
        """Give the policy its lines to the environments' actors."""
        links = {e: SocketLink(name, number, patience) for e, (name, number) in envs.items()}
        self._fragment.connect(links)

    def do(self, request: str, n: int, *args: Any) -> tuple[Any, ...]:
        """Nothing, then the `n` results of a request."""
        results = self.ask(request, *args)
        return (None, *results) if n > 1 else (None, results)

    def ask(self, request: str, *args: Any) -> Any:
        """What a request gives. After a failure there is nothing but that failure."""
        if self._failure is not None:
            raise self._failure
        try:
            if request in _OWN:
                return getattr(self, request)(*args)
            method = getattr(self._fragment, request)
            if not self._jax:
                return method(*args)
            return _leaving(method(*map(_arriving, args)))
        except Exception as error:
            self._failure = Elsewhere(pack(error, self._name))
        raise self._failure

    def close(self) -> None:
        """Free what the environments hold."""
        fragment, self._fragment = self._fragment, None
        try:
            if self._exchange is not None:
                self._exchange.close()
            if fragment is not None:
                fragment.close()
        except Exception as error:
            raise Elsewhere(pack(error, self._name)) from None


def _configure(config: bytes) -> None:
    """Set jax as it is set in the driver."""
    import jax

    here = jax.config.values
    for name, value in pickle.loads(config).items():
        if here.get(name, value) != value:
            jax.config.update(name, value)


def _leaving(tree: Any) -> Any:
    """What may leave the process: NumPy arrays in place of JAX's."""
    from rondel.execution.task import on_host

    return tree if _is_small(tree) else on_host(tree)


def _arriving(tree: Any) -> Any:
    """What came from elsewhere, in memory of our own."""
    from rondel.execution.task import to_device

    return tree if _is_small(tree) else to_device(tree)


def _is_small(arg: Any) -> bool:
    """Is it no tree of arrays? An int must stay one: arrays are of another type to jax."""
    return arg is None or isinstance(arg, int | float | str | Share | Promise)


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
