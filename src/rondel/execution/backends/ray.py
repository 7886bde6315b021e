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
from typing import Any

from rondel.errors import RondelError
from rondel.execution.backend import (
    Copy,
    Late,
    Lost,
    drives,
    envs_of,
    name_of,
    recipe,
    units,
)
from rondel.execution.backends.actor import Turn, Worker, leaving, surroundings
from rondel.execution.backends.cluster import (
    Bundle,
    bundles_of,
    missing,
    refuse_if_nobody_listens,
    said,
    total,
)
from rondel.execution.backends.failure import Elsewhere, unpack
from rondel.execution.backends.journal import TAKE_OVER, Asked, Journal, Redo, is_start
from rondel.execution.backends.keeper import Keeper
from rondel.execution.backends.ledger import Call, Promise, lost_with
from rondel.execution.hosted import HostedLanes
from rondel.execution.supervise import Death, Restart, Stop, decide
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
_MISSES = 5  # times that what Ray lost is asked again, if nobody died
_AT_START = 2  # restarts of a copy that has never done anything yet
_AGAIN = 1 << 20  # episodes that begin after a death are others than any that began before
_log = logging.getLogger("rondel")


# in the driver


class RayCopy:
    """A copy in an actor."""

    def __init__(self, backend: Ray, place: tuple[int, int], name: str) -> None:
        from rondel.execution.fragment import RESULTS

        self.backend, self.place, self.name, self.results = backend, place, name, RESULTS
        self.options: dict[str, Any] = {}  # what its actors ask of Ray
        self.recipe = False, b""  # what they are told to be
        self.journal = Journal(is_kept=False)
        self.actor: Any = None
        self.process, self.address, self.node = 0, "", ""  # once they are known
        self.open: deque[Call] = deque()  # calls that are not known to be over
        self.turn = Turn(0, 0)  # of the next call
        self.busy_since = 0.0  # when it was last heard of, or asked after it had nothing to do
        self._methods: dict[int, Any] = {}

    @property
    def id(self) -> str:
        return str(self.actor._actor_id.hex())

    def __str__(self) -> str:
        if not self.node:
            return self.name
        return f"{self.name} (process {self.process} on {self.address})"

    def be(self, actor: Any) -> None:
        """From now on it is in this actor."""
        self.actor, self.turn, self._methods = actor, Turn(0, 0), {}
        self.process, self.address, self.node = 0, "", ""

    def call(self, request: str, *args: Any) -> Any:
        ready = (a if isinstance(a, Promise) else leaving(a) for a in args)
        promises = self.ask(request, *ready)
        return promises[0] if len(promises) == 1 else tuple(promises)

    def ask(self, request: str, *args: Any) -> list[Promise]:
        """The same, with arguments that may leave this process as they are."""
        promises = [Promise() for _ in range(self.results.get(request, 1))]
        self.send(Asked(request, args, promises))
        return promises

    def send(self, asked: Asked) -> Call:
        """Ask the actor; what it will answer is what was promised."""
        promises = asked.promises
        if promises is None:  # it was answered before; whoever still needs that gets it from here
            lost = self.backend.is_gone(self)
            promises = [made() or Promise() if lost else Promise() for made in asked.made]
            promises = promises or [Promise()]
        n = len(promises)
        if n not in self._methods:
            self._methods[n] = self.actor.do.options(num_returns=n + 1)
        sent = (a.ref if isinstance(a, Promise) else a for a in asked.args)
        call = Call(self, asked, self.turn.number, self.backend.next_order())
        call.done, *refs = self._methods[n].remote(asked.request, n, self.turn, *sent)
        self.turn = self.turn._replace(number=self.turn.number + 1)
        for promise, ref in zip(promises, refs, strict=True):
            promise.call, promise.ref = call, ref
        if not self.open:
            self.busy_since = time.monotonic()
        self.open.append(call)
        return call

    def settle(self, call: Call) -> None:
        """A call is over, and so are those before it: a copy answers in order."""
        self.busy_since = time.monotonic()
        while not call.over:
            earlier = self.open.popleft()
            earlier.over = True
            self.journal.note(earlier.asked)


class Ray:
    """The backend of Ray's actors.

    By default a cluster is started here for the run; `address` names one that runs already, as
    does RAY_ADDRESS, and a program that has called `ray.init` keeps what it has. `resources` says
    what a copy of each piece of the plan asks for: {"cpu": 1, "gpu": 1, "memory": bytes}, or names
    of the cluster's own; by default one CPU each. No call may take longer than `deadline` seconds.
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
        self._address, self._resources, self._deadline = address, resources, deadline
        self._copies: list[RayCopy] = []
        self._group: Any = None
        self._ours = False  # was Ray started here?
        self._restarts = restarts
        self._sent = 0  # calls, ever
        self._keeper = Keeper()
        self._homeless: set[str] = set()  # names of copies whose node died with them
        self._missed = 0  # times that something was lost and nobody had died, in a row

    def launch(self, task: Any, plan: Plan) -> list[list[Copy]]:
        bundles = bundles_of(plan, self._resources)
        recipes = _packed(task, plan)
        self._plan, self._redo = plan, Redo(plan, task)
        try:
            self._join_cluster(sum(map(len, bundles)))
            self._reserve(plan, bundles)
            pieces = self._make_copies(plan, bundles, recipes)
            self._start(self._copies)
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

    def _make_copies(
        self, plan: Plan, bundles: list[list[Bundle]], recipes: list[tuple[bool, bytes]]
    ) -> list[list[Any]]:
        pieces: list[list[Any]] = []
        bundle_number = 0
        packed = iter(recipes)
        for piece, asked in enumerate(bundles):
            pieces.append([])
            driven = drives(plan) and piece == 0
            for i, bundle in enumerate(asked):
                own = {k: v for k, v in bundle.items() if k not in ("CPU", "GPU", "memory")}
                copy = RayCopy(self, (piece, i), name_of(plan, piece, i))
                copy.recipe = next(packed)
                copy.journal = Journal(is_kept=self._restarts > 0 and not driven)
                copy.options = {
                    "num_cpus": bundle.get("CPU", 0),
                    "num_gpus": bundle.get("GPU", 0),
                    "memory": bundle.get("memory"),
                    "resources": own,
                    "max_restarts": 0,
                    "max_task_retries": 0,
                }
                if bundle:
                    copy.options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                        self._group, bundle_number, placement_group_capture_child_tasks=False
                    )
                    bundle_number += 1
                pieces[-1].append(copy)
                self._copies.append(copy)
        return pieces

    def _start(self, copies: list[RayCopy]) -> None:
        """An actor for each copy, with lines between policies and environments."""
        worker, like_here = ray.remote(Worker), surroundings()

        def where() -> tuple[str, str]:
            return ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()

        for copy in copies:
            copy.be(worker.options(**copy.options).remote(where))
        made = [copy.ask("make", copy.name, like_here, *copy.recipe)[0] for copy in copies]
        for copy, place in zip(copies, self._fetch(made), strict=True):
            copy.process, copy.address, copy.node = place
        if drives(self._plan):
            self._connect(copies)

    def _connect(self, copies: list[RayCopy]) -> None:
        patience = self._deadline / 2  # below the driver's own, so that the env is named
        policy_piece = self._plan.pieces.index(self._plan.piece_of("policy"))
        envs = [copy for copy in copies if copy.place[0] == 0]
        numbers = self._fetch([env.ask("listen")[0] for env in envs])
        at = {e.place[1]: (str(e), number) for e, number in zip(envs, numbers, strict=True)}
        for policy in copies:
            if policy.place[0] == policy_piece:
                mine = {e: at[e] for e in envs_of(self._plan, policy.place[1])}
                policy.ask("connect", mine, patience)

    def next_order(self) -> int:
        """A number for a call, in the order of sending."""
        self._sent += 1
        return self._sent

    def is_gone(self, copy: RayCopy) -> bool:
        """Did what a copy had made go with its node?"""
        return copy.name in self._homeless

    def get(self, promises: Sequence[Any]) -> list[Any]:
        from rondel.execution.task import to_device

        mine = [promise for promise in promises if isinstance(promise, Promise)]
        while True:
            self._listen(mine, len(mine))
            try:
                values = iter(ray.get([p.ref for p in mine], timeout=self._deadline))
                break
            except GetTimeoutError:
                problem = self._not_come()
            except RayError as error:  # what was made is lost, with the node that had it
                self._recover({None: error})
                continue
            raise problem
        # copied: what the store gives is read-only, and gone with the cluster
        return [to_device(next(values)) if isinstance(p, Promise) else p for p in promises]

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
            errors: dict[Call | None, RayError] = {
                by_done[done]: error for done in over if (error := _error_of(done))
            }
            for call in map(by_done.__getitem__, over):
                if call not in errors:
                    call.copy.settle(call)
                    self._missed = 0
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
        try:
            values = ray.get([promise.ref for promise in promises], timeout=self._deadline)
        except GetTimeoutError:
            problem: BaseException = Late(self._who_is_late())
        except RayError as error:
            problem = self._behind(fault_in(error, self._names()))
        else:
            for promise in promises:
                promise.call.copy.settle(promise.call)
            return values
        raise problem  # here, so that Ray's own error is not shown as its context

    def _not_come(self) -> Late:
        return Late(
            f"What was made did not come to the driver within {self._deadline:g} s: the network is "
            "slow, or a node is gone."
        )

    def _names(self) -> dict[str, str]:
        return {copy.id: str(copy) for copy in self._copies if copy.actor is not None}

    def settled(self, now: bool = False) -> None:
        """The ring is between two rounds: keep what copies are, if it is time to."""
        if self._restarts == 0:
            return
        if now:
            self._keeper.abandon()
        self._keeper.ask_if_due(self._copies)
        if now:
            self._listen(self._keeper.asked, len(self._keeper.asked))
        asked = self._keeper.asked
        if not asked or not all(promise.call.over for promise in asked):
            return
        refs = [promise.ref for promise in asked]  # brought here, lest they are lost with a node
        patience = self._deadline if now else 0
        here, _ = ray.wait(refs, num_returns=len(refs), timeout=patience, fetch_local=True)
        if len(here) == len(refs):
            self._keeper.take([True] * len(asked))

    # when a copy dies or hangs

    def _watch(self) -> None:
        """Look for copies that have all that they need and don't answer in time."""
        now = time.monotonic()
        for copy in self._copies:
            ready = copy.open and all(call.over for call in copy.open[0].inputs)
            if not ready:
                copy.busy_since = now
            elif now - copy.busy_since > self._deadline:
                if self._restarts == 0:
                    raise Late(self._who_is_late())
                how = f"answered nothing to `{copy.open[0].asked.request}` for {self._deadline:g} s"
                self._revive({copy: how}, [], killed=False)
                return

    def _recover(self, errors: Mapping[Call | None, RayError]) -> None:
        """Start those again who died; what was lost with them is asked again. Or raise."""
        ids = {copy.id: copy for copy in self._copies}
        dead: dict[RayCopy, str] = {}
        told: list[BaseException] = []
        for call, error in errors.items():
            fault = fault_in(error, self._names())
            if isinstance(fault, Missed):
                told.append(fault)
                continue
            problem = self._behind(fault)
            told.append(problem)
            if not isinstance(problem, Lost | Late):
                raise problem
            if (who := getattr(problem, "actor", "")) in ids:
                dead[ids[who]] = _how(problem)
            elif call is not None:
                dead[call.copy] = _how(problem)
        if self._restarts == 0:
            raise next((t for t in told if not isinstance(t, Missed)), self._behind(told[0]))
        failed = [self._first_unanswered(call) for call in errors if call is not None]
        if not dead:  # some have only missed others; who is it?
            dead = {copy: _how(death) for copy, death in self._find_dead()}
        if dead:
            self._revive(dead, failed, killed=True)
        else:  # it was mended already
            self._missed += 1
            if self._missed > _MISSES:
                raise Lost(f"Ray lost something again and again, although nobody died: {told[0]}")
            self._ask_again(lost_with([], self._copies, failed))

    def _first_unanswered(self, call: Call) -> Call:
        """Of the calls that a copy was asked until this one, which failed, the first that did."""
        for earlier in list(call.copy.open):
            if _error_of(earlier.done) is not None:
                return earlier
            call.copy.settle(earlier)
        return call

    def _find_dead(self) -> list[tuple[RayCopy, Lost]]:
        """Who has died, as far as Ray knows by now."""
        names = self._names()
        probes = {copy.actor.__ray_ready__.remote(): copy for copy in self._copies}
        end = time.monotonic() + _MOURNING
        while probes and (left := end - time.monotonic()) > 0:
            over, _ = ray.wait(list(probes), num_returns=1, timeout=left, fetch_local=False)
            for ref in over:
                copy = probes.pop(ref)
                if isinstance(death := _fault_of(ref, names), Lost):
                    return [(copy, death)]
        return []

    def _revive(self, dead: dict[RayCopy, str], failed: list[Call], killed: bool) -> None:
        """Start copies again, and those that they have lines to, if that is decided."""
        together: list[RayCopy] = []
        for copy, how in dead.items():
            mine = next(unit for unit in units(self._plan) if copy.place in unit)
            unit = [c for c in self._copies if c.place in mine]
            together += [c for c in unit if c not in together]
            self._decide(copy, unit, how, killed)
        lost = lost_with(together, self._copies, failed)
        self._keeper.abandon()
        while True:
            alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            self._homeless |= {copy.name for copy in together if copy.node not in alive}
            for copy in together:
                ray.kill(copy.actor)
                copy.open.clear()
            try:
                self._start(together)
                break
            except (Lost, Late) as death:
                ids = {copy.id: copy for copy in together}
                copy = ids.get(getattr(death, "actor", ""), together[0])
                self._decide(copy, together, _how(death), killed)
        for copy in together:
            self._replay(copy)
        self._ask_again(lost)
        self._homeless.clear()

    def _decide(self, copy: RayCopy, unit: list[RayCopy], how: str, killed: bool) -> None:
        progress = any(member.journal.progress for member in unit)
        copy.journal.deaths.append(Death(how, killed, "", progress))
        began = any(member.journal.began for member in unit)
        may = self._restarts if began else min(self._restarts, _AT_START)
        match decide(copy.journal.deaths, may):
            case Stop(reason):
                raise Lost(f"{copy} {reason}")
            case Restart(pause):
                _log.warning("%s %s. It is started again.", copy, how)
                time.sleep(pause)

    def _replay(self, copy: RayCopy) -> None:
        """Make a new copy what the old one was."""
        journal = copy.journal
        answered, journal.answered, journal.progress = journal.answered, [], False
        if journal.base is not None:
            again = _AGAIN + sum(len(c.journal.deaths) for c in self._copies)
            copy.send(Asked(TAKE_OVER, (journal.base, again), None))
        redo = self._redo.all(copy.place[0]) or self.is_gone(copy)
        for asked in answered:
            if redo or asked.request != "produce":
                copy.send(asked)

    def _ask_again(self, lost: list[Call]) -> None:
        """Send once more what will not be answered, in the order in which it was sent."""
        for call in lost:
            copy = call.copy
            if call in copy.open:  # the first of those that a living copy has not answered
                copy.turn = Turn(copy.turn.epoch + 1, call.number)
                copy.open = deque(c for c in copy.open if c not in lost)
            if not is_start(call.asked):
                copy.send(call.asked)

    def _behind(self, fault: BaseException) -> BaseException:
        """What to blame: where a copy only missed another one, what became of that."""
        error = unpack(fault.packed) if isinstance(fault, Elsewhere) else fault
        if isinstance(fault, Died) or not isinstance(error, Lost | Missed):
            return error
        dead = self._find_dead()
        return dead[0][1] if dead else error

    def _who_is_late(self) -> str:
        """Those who have all that they need and still don't answer, not those who wait for them."""
        first = [copy.open[0] for copy in self._copies if copy.open]
        busy = [call for call in first if all(i.over for i in call.inputs)] or first
        said = ", ".join(f"{call.copy} with `{call.asked.request}`" for call in busy)
        return (
            f"Nothing was heard for {self._deadline:g} s. Late: {said}. It hangs, or needs a "
            "longer deadline."
        )

    def close(self) -> None:
        """Let copies free what they hold, then end them, and Ray if it was started here."""
        copies, self._copies = [c for c in self._copies if c.actor is not None], []
        self._keeper.abandon()
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


def _error_of(ref: Any) -> RayError | None:
    """What came of a call that is over, if it failed."""
    try:
        ray.get(ref)
    except RayError as error:
        return error
    return None


def _fault_of(ref: Any, names: Mapping[str, str]) -> Elsewhere | Lost | None:
    error = _error_of(ref)
    return None if error is None else fault_in(error, names)


def _how(death: BaseException) -> str:
    """What became of a copy, behind its name."""
    return f"died: {str(death).partition(' died: ')[2] or death}".splitlines()[0].rstrip(".")


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


class Died(Lost):
    """An actor is gone."""

    def __init__(self, words: str, actor: str) -> None:
        super().__init__(words)
        self.actor = actor  # its id


class Missed(Lost):
    """A copy could not be asked, because of what became of another."""


def fault_in(error: RayError, names: Mapping[str, str]) -> Elsewhere | Lost:
    """What is behind an error of Ray's; `names` are what people call the actors, by id."""
    cause: Any = error
    while isinstance(cause, RayTaskError):
        cause = cause.cause
    if isinstance(cause, Elsewhere):
        return cause
    if isinstance(cause, ActorDiedError) and cause.actor_id in names:
        return Died(f"{names[cause.actor_id]} died: {_reason(str(cause))}", cause.actor_id)
    return Missed(f"Ray failed: {cause}")


def _reason(text: str) -> str:
    """The part of Ray's page about a dead actor that says why."""
    because = re.search(r"The actor is dead because (.*)", text, re.DOTALL)
    said = (because[1] if because else text).partition("Some common causes include")[0].strip()
    return re.sub(r"Worker exit type: \w+ Worker exit detail: ", "", said)
