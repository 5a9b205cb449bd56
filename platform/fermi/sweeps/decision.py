"""What one pass over a sweep does, from what is stored. Pure: the pass carries it out, and may die at any line of that,
because the next pass decides the same from what is stored then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fermi.sweeps import pruning
from fermi.sweeps.budget import Spent
from fermi.sweeps.pruning import Pruned
from fermi.sweeps.spec import SweepSpec

MIN_FAILURES = 5
"""So many trials in a row, or as many as run at the same time, that fail without a value pause the sweep."""


class SweepState(StrEnum):
    """States of a sweep. `paused`: no trial starts; those that run go on."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    ENDED = "ended"


class TrialState(StrEnum):
    """States of a trial. `new`: its task is still to be made; `active`: its task waits or runs; `paused`: at a rung;
    `stopping`: its task was asked to stop."""

    NEW = "new"
    ACTIVE = "active"
    PAUSED = "paused"
    STOPPING = "stopping"
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"
    STOPPED = "stopped"


OPEN_STATES = frozenset({TrialState.NEW, TrialState.ACTIVE, TrialState.PAUSED, TrialState.STOPPING})
RUNNING_STATES = frozenset({TrialState.NEW, TrialState.ACTIVE, TrialState.STOPPING})
"""States of trials that hold one of the places for trials that run at the same time."""


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """What is known of a trial. `rung`: how many rungs it has passed; `marks`: its objective at the steps at which
    trials are compared."""

    number: int
    state: TrialState
    marks: Mapping[int, float] = field(default_factory=dict)
    rung: int = 0
    value: float | None = None


NO_REASON = Pruned("")


@dataclass(frozen=True, slots=True)
class TrialAct:
    """What is done with a trial: `pause`, `promote` (a paused one is resumed), `advance` (a running one has passed a
    rung), or `stop`. `rung`: how many it has passed then; `ends`: the state of a stopped one when its task has ended.
    """

    verb: str
    number: int
    why: Pruned = NO_REASON
    rung: int = 0
    ends: TrialState = TrialState.PRUNED


@dataclass(frozen=True, slots=True)
class SweepDecision:
    """What a pass does: first the acts on trials, then it starts up to `starts` further trials. `spent`: why it starts
    none. `ends`: the sweep is over, for this reason; `fails`: it is paused, because so many trials in a row failed."""

    acts: tuple[TrialAct, ...] = ()
    starts: int = 0
    ends: Spent | None = None
    fails: int = 0


def decide_sweep(
    spec: SweepSpec,
    state: SweepState,
    trials: Sequence[TrialFacts],
    spent: Spent | None,
    *,
    stopped: Spent | None = None,
    judged_from: int = 0,
) -> SweepDecision:
    """Return what a pass does. `spent`: what of the budget is used up, or that the grid has no further combination;
    `stopped`: why the sweep is stopping. `judged_from`: failures of trials before this number do not pause it."""
    if state is SweepState.ENDED:
        return SweepDecision()
    open_trials = [one for one in trials if one.state in OPEN_STATES]
    if state is SweepState.STOPPING:
        return _stop_all(open_trials, stopped or Spent("SWEEP_STOPPED"))
    if spent and spent.stops:
        return _stop_all(open_trials, spent)
    acts = _compare_trials(spec, trials)
    paused = {act.number for act in acts if act.verb in ("pause", "stop")}
    running = [one for one in open_trials if one.state in RUNNING_STATES and one.number not in paused]
    room = max(0, spec.parallel - len(running))
    if state is SweepState.PAUSED:
        return SweepDecision(tuple(acts))
    if failures := _count_failures(spec, trials, judged_from):
        return SweepDecision(tuple(acts), fails=failures)
    promotions = _list_promotions(spec, trials)[:room]
    acts += promotions
    room -= len(promotions)
    if spent is None:
        return SweepDecision(tuple(acts), starts=min(room, max(0, spec.max_trials - len(trials))))
    if not running and not promotions and not paused:
        waiting = [one for one in open_trials if one.state is TrialState.PAUSED]
        if not waiting:
            return SweepDecision(tuple(acts), ends=spent)
        if not any(one.state is TrialState.COMPLETE for one in trials) and (last := _promote_best(spec, waiting)):
            return SweepDecision((*acts, last))
        return SweepDecision(
            (*acts, *(TrialAct("stop", one.number, _explain_end(spec, one, trials)) for one in waiting))
        )
    return SweepDecision(tuple(acts))


def _stop_all(open_trials: Sequence[TrialFacts], why: Spent) -> SweepDecision:
    if not open_trials:
        return SweepDecision(ends=why)
    cause = Pruned(why.code, why.params)
    return SweepDecision(
        tuple(
            TrialAct("stop", one.number, cause, ends=TrialState.STOPPED)
            for one in open_trials
            if one.state is not TrialState.STOPPING
        )
    )


def _count_failures(spec: SweepSpec, trials: Sequence[TrialFacts], judged_from: int) -> int:
    """Return how many trials in a row, up to the newest that ended, failed; 0 where that is not reason to pause."""
    ended = [one for one in trials if one.state not in OPEN_STATES and one.number >= judged_from]
    failures = 0
    for one in sorted(ended, key=lambda one: -one.number):
        if one.state is not TrialState.FAILED:
            break
        failures += 1
    return failures if failures >= max(MIN_FAILURES, spec.parallel) else 0


def _compare_trials(spec: SweepSpec, trials: Sequence[TrialFacts]) -> list[TrialAct]:
    """Return what becomes of running trials that came to a step at which they are compared."""
    active = [one for one in trials if one.state is TrialState.ACTIVE]
    if spec.pruning.method == "asha":
        return [act for one in active if (act := _judge_at_rungs(spec, one, trials))]
    if spec.pruning.method == "median":
        return [act for one in active if (act := _judge_at_median(spec, one, trials))]
    return []


def _judge_at_rungs(spec: SweepSpec, one: TrialFacts, trials: Sequence[TrialFacts]) -> TrialAct | None:
    passed = one.rung
    for rung in sorted(one.marks)[one.rung :]:
        others = _list_other_marks(trials, one.number, rung)
        if why := pruning.judge_rung(spec.pruning, spec.objective, rung, one.marks[rung], others):
            return TrialAct("pause", one.number, why, passed)
        passed += 1
    return TrialAct("advance", one.number, rung=passed) if passed > one.rung else None


def _judge_at_median(spec: SweepSpec, one: TrialFacts, trials: Sequence[TrialFacts]) -> TrialAct | None:
    for step in sorted(one.marks)[one.rung :]:
        others = _list_other_marks(trials, one.number, step)
        if why := pruning.judge_median(spec.pruning, spec.objective, step, one.marks[step], others):
            return TrialAct("stop", one.number, why, one.rung)
    return TrialAct("advance", one.number, rung=len(one.marks)) if len(one.marks) > one.rung else None


def _list_promotions(spec: SweepSpec, trials: Sequence[TrialFacts]) -> list[TrialAct]:
    """Return the paused trials that go on, those at the highest rung first, and of one rung the best first."""
    found: list[tuple[int, float, TrialAct]] = []
    sign = 1.0 if spec.objective.goal == "minimize" else -1.0
    for one in trials:
        rung = _find_rung(one)
        if one.state is not TrialState.PAUSED or rung is None:
            continue
        others = _list_other_marks(trials, one.number, rung)
        value = one.marks[rung]
        if pruning.is_promotable(spec.pruning, spec.objective, value, others):
            params: dict[str, Any] = {"step": rung, "value": pruning.round_value(value), "count": len(others) + 1}
            act = TrialAct("promote", one.number, Pruned("TRIAL_PROMOTED", params), one.rung + 1)
            found.append((-one.rung, sign * value, act))
    return [act for *_, act in sorted(found, key=lambda entry: entry[:2])]


def _promote_best(spec: SweepSpec, waiting: Sequence[TrialFacts]) -> TrialAct | None:
    """Return the promotion of the best trial at the highest rung, so that a sweep of few trials has one that came to
    its end."""
    sign = 1.0 if spec.objective.goal == "minimize" else -1.0
    ranked = [(-one.rung, sign * one.marks[rung], one.number, rung) for one in waiting if (rung := _find_rung(one))]
    if not ranked:
        return None
    passed, value, number, rung = min(ranked)
    params = {
        "step": rung,
        "value": pruning.round_value(sign * value),
        "count": sum(one.rung == -passed for one in waiting),
    }
    return TrialAct("promote", number, Pruned("TRIAL_PROMOTED", params), 1 - passed)


def _explain_end(spec: SweepSpec, one: TrialFacts, trials: Sequence[TrialFacts]) -> Pruned:
    """Return why a paused trial ends with the sweep: more trials have come to its rung since it was paused there."""
    rung = _find_rung(one)
    if rung is None:
        return NO_REASON
    others = _list_other_marks(trials, one.number, rung)
    return pruning.explain_end(spec.pruning, spec.objective, rung, one.marks[rung], others)


def _find_rung(one: TrialFacts) -> int | None:
    """Return the step of the rung at which a trial was paused."""
    rungs = sorted(one.marks)
    return rungs[one.rung] if one.rung < len(rungs) else None


def _list_other_marks(trials: Sequence[TrialFacts], number: int, step: int) -> list[float]:
    return [other.marks[step] for other in trials if other.number != number and step in other.marks]
