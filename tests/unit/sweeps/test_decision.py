"""Which trials are paused, promoted, stopped and started."""

from dataclasses import replace
from typing import Any

import pytest

from fermi.sweeps.budget import Spent, SweepUse, find_spent
from fermi.sweeps.decision import SweepDecision, SweepState, TrialFacts, TrialState, decide_sweep
from fermi.sweeps.pruning import CurveState, add_points, list_rungs
from fermi.sweeps.spec import ObjectiveRequest, PruningRequest, SweepSpec, parse_sweep

ASHA = PruningRequest(method="asha", min_steps=10, reduction=3)
MEDIAN = PruningRequest(method="median", min_steps=10, interval=5, start_trials=3)
RUN, DONE = SweepState.RUNNING, Spent("SWEEP_TRIALS_DONE", stops=False)


def make_spec(**changes: Any) -> SweepSpec:
    body = {
        "name": "x",
        "objective": {"metric": "loss"},
        "parameters": {"lr": {"min": 0, "max": 1}},
        "budget": {"trials": 9},
        "parallel": 4,
        "request": {"taskName": "t"},
        **changes,
    }
    spec, problems = parse_sweep(body)
    assert problems == []
    return spec


def make_trial(number: int, state: TrialState, *marks: float, rung: int = 0) -> TrialFacts:
    steps = list_rungs(ASHA, 10**6)
    return TrialFacts(number, state, dict(zip(steps, marks, strict=False)), rung)


def list_verbs(decision: SweepDecision) -> dict[int, str]:
    return {act.number: act.verb for act in decision.acts}


def test_as_many_trials_start_as_there_are_places() -> None:
    spec = make_spec()
    assert decide_sweep(spec, RUN, [], None).starts == 4
    trials = [make_trial(0, TrialState.ACTIVE), make_trial(1, TrialState.COMPLETE), make_trial(2, TrialState.PAUSED)]
    assert decide_sweep(spec, RUN, trials, None).starts == 3
    assert decide_sweep(spec, SweepState.PAUSED, trials, None).starts == 0
    assert decide_sweep(spec, RUN, trials, DONE).starts == 0


def test_a_trial_below_the_best_third_of_a_rung_pauses() -> None:
    spec = replace(make_spec(), pruning=ASHA)
    trials = [make_trial(0, TrialState.ACTIVE, 1.0)]
    alone = decide_sweep(spec, RUN, trials, None)
    assert list_verbs(alone) == {0: "pause"}  # of one, a third is none
    assert alone.acts[0].why.params == {"step": 10, "value": 1.0, "place": 1, "count": 1, "kept": 0}
    assert alone.starts == 4
    trials += [make_trial(1, TrialState.PAUSED, 2.0), make_trial(2, TrialState.PAUSED, 3.0)]
    assert list_verbs(decide_sweep(spec, RUN, trials, None)) == {0: "advance"}


def test_a_paused_trial_is_promoted_once_later_ones_are_worse() -> None:
    spec = replace(make_spec(), pruning=ASHA)
    trials = [make_trial(0, TrialState.PAUSED, 1.0), make_trial(1, TrialState.PAUSED, 2.0)]
    assert decide_sweep(spec, RUN, trials, None).acts == ()
    trials.append(make_trial(2, TrialState.ACTIVE, 3.0))
    decision = decide_sweep(spec, RUN, trials, None)
    assert list_verbs(decision) == {2: "pause", 0: "promote"}
    assert decision.acts[1].rung == 1
    assert decision.starts == 3


def test_promotions_come_before_new_trials_and_wait_for_a_place() -> None:
    spec = replace(make_spec(), pruning=ASHA, parallel=1)
    trials = [make_trial(n, TrialState.PAUSED, float(n)) for n in range(6)]
    decision = decide_sweep(spec, RUN, trials, None)
    assert (list_verbs(decision), decision.starts) == ({0: "promote"}, 0)
    busy = [*trials, make_trial(6, TrialState.ACTIVE)]
    assert decide_sweep(spec, RUN, busy, None).acts == ()


def test_more_is_better_where_the_goal_is_to_maximize() -> None:
    spec = replace(make_spec(objective={"metric": "acc", "goal": "maximize"}), pruning=ASHA)
    trials = [make_trial(n, TrialState.PAUSED, float(n)) for n in range(3)]
    assert list_verbs(decide_sweep(spec, RUN, trials, None)) == {2: "promote"}


def test_a_sweep_ends_its_paused_trials_when_none_can_be_promoted_any_more() -> None:
    spec = replace(make_spec(), pruning=ASHA)
    trials = [make_trial(n, TrialState.PAUSED, float(n)) for n in (1, 2)] + [make_trial(0, TrialState.COMPLETE, 0.0)]
    decision = decide_sweep(spec, RUN, trials, DONE)
    assert (list_verbs(decision), decision.ends) == ({1: "stop", 2: "stop"}, None)
    assert {act.ends for act in decision.acts} == {TrialState.PRUNED}
    assert decision.acts[0].why.code == "TRIAL_NOT_PROMOTED"
    assert decision.acts[0].why.params == {"step": 10, "value": 1.0, "place": 2, "count": 3, "kept": 1}
    ended = [replace(one, state=TrialState.PRUNED) for one in trials]
    assert decide_sweep(spec, RUN, ended, DONE).ends == DONE


def test_nine_trials_of_asha_end_with_one_at_the_highest_rung() -> None:
    """Each trial's objective is its number; a life in which all that the decisions say happens at once."""
    spec = replace(make_spec(parallel=2), pruning=PruningRequest(method="asha", min_steps=10, max_steps=90))
    trials: list[TrialFacts] = []
    trained: dict[int, int] = {}
    for _ in range(100):
        spent = find_spent(spec, SweepUse(len(trials)), 0)
        decision = decide_sweep(spec, RUN, trials, spent)
        states = {"pause": TrialState.PAUSED, "promote": TrialState.ACTIVE, "advance": TrialState.ACTIVE,
                  "stop": TrialState.PRUNED}  # fmt: skip
        for act in decision.acts:
            trials[act.number] = replace(trials[act.number], state=states[act.verb], rung=act.rung)
        trials += [TrialFacts(len(trials) + n, TrialState.ACTIVE) for n in range(decision.starts)]
        if decision.ends:
            break
        for one in trials:
            if one.state is TrialState.ACTIVE:
                rungs = list_rungs(spec.pruning, 90)
                trained[one.number] = trained.get(one.number, 0) + 1
                done = len(one.marks) == len(rungs)
                marks = one.marks if done else {**one.marks, rungs[len(one.marks)]: float(one.number)}
                trials[one.number] = replace(one, marks=marks, state=TrialState.COMPLETE if done else one.state)
    assert decision.ends
    assert decision.ends.code == "SWEEP_TRIALS_DONE"
    assert len(trials) == 9
    assert [one.number for one in trials if one.state is TrialState.COMPLETE] == [0]
    assert max(trained.values()) == 3  # to both rungs and to the end, each part once


def test_the_best_of_a_few_trials_goes_on_to_the_end() -> None:
    spec = replace(make_spec(), pruning=ASHA)
    trials = [make_trial(0, TrialState.PAUSED, 2.0), make_trial(1, TrialState.PAUSED, 1.0)]
    decision = decide_sweep(spec, RUN, trials, DONE)
    assert list_verbs(decision) == {1: "promote"}
    assert decision.acts[0].rung == 1
    again = [trials[0], make_trial(1, TrialState.PAUSED, 1.0, 0.9, rung=1)]
    assert decide_sweep(spec, RUN, again, DONE).acts[0].rung == 2


def test_a_trial_below_the_median_is_stopped_once_enough_others_came_as_far() -> None:
    spec = replace(make_spec(), pruning=MEDIAN)
    others = [TrialFacts(n, TrialState.COMPLETE, {10: float(n), 15: float(n)}) for n in range(3)]
    worse = TrialFacts(3, TrialState.ACTIVE, {10: 5.0})
    decision = decide_sweep(spec, RUN, [*others, worse], None)
    assert list_verbs(decision) == {3: "stop"}
    assert decision.acts[0].why.params == {"step": 10, "value": 5.0, "median": 1.0, "count": 3}
    assert list_verbs(decide_sweep(spec, RUN, [*others[:2], worse], None)) == {3: "advance"}
    better = TrialFacts(3, TrialState.ACTIVE, {10: 0.5, 15: 0.5}, rung=1)
    assert list_verbs(decide_sweep(spec, RUN, [*others, better], None)) == {3: "advance"}


def test_a_budget_that_stops_ends_all_trials_before_the_sweep() -> None:
    spec, spent = make_spec(), Spent("SWEEP_GPU_HOURS_SPENT", {"high": 1, "found": 2})
    trials = [make_trial(0, TrialState.ACTIVE), make_trial(1, TrialState.PAUSED), make_trial(2, TrialState.STOPPING)]
    decision = decide_sweep(spec, RUN, trials, spent)
    assert list_verbs(decision) == {0: "stop", 1: "stop"}
    assert (decision.ends, decision.starts) == (None, 0)
    assert {act.ends for act in decision.acts} == {TrialState.STOPPED}
    assert decide_sweep(spec, SweepState.STOPPING, [], None).ends == Spent("SWEEP_STOPPED")
    assert decide_sweep(spec, RUN, [make_trial(0, TrialState.STOPPED)], spent).ends == spent


def test_trials_that_fail_one_after_the_other_pause_the_sweep() -> None:
    spec = make_spec()
    failed = [make_trial(n, TrialState.FAILED) for n in range(5)]
    assert decide_sweep(spec, RUN, failed, None).fails == 5
    assert decide_sweep(spec, RUN, failed[:4], None).fails == 0
    assert decide_sweep(spec, RUN, [*failed, make_trial(5, TrialState.COMPLETE)], None).fails == 0
    assert decide_sweep(spec, RUN, failed, None, judged_from=3).fails == 0


@pytest.mark.parametrize(
    ("use", "moment", "code"),
    [
        (SweepUse(8, 9.9, 9.9), 99, None),
        (SweepUse(9, 0, None), 0, "SWEEP_TRIALS_DONE"),
        (SweepUse(1, 10, None), 0, "SWEEP_GPU_HOURS_SPENT"),
        (SweepUse(1, 0, 10), 0, "SWEEP_COST_SPENT"),
        (SweepUse(1, 0, None), 100, "SWEEP_TIME_OVER"),
    ],
)
def test_each_part_of_the_budget_ends_the_sweep(use: SweepUse, moment: float, code: str | None) -> None:
    budget = {"trials": 9, "gpuHours": 10, "cost": 10, "endsAt": "1970-01-01T00:01:40Z"}
    spent = find_spent(make_spec(budget=budget), use, moment)
    assert (spent and spent.code) == code


@pytest.mark.parametrize(("goal", "reached", "short"), [("minimize", 0.5, 0.6), ("maximize", 0.6, 0.4)])
def test_a_target_that_is_reached_ends_the_sweep(goal: str, reached: float, short: float) -> None:
    spec = make_spec(objective={"metric": "m", "goal": goal, "target": 0.5})
    spent = find_spent(spec, SweepUse(1, best=reached), 0)
    assert spent
    assert (spent.code, spent.stops) == ("SWEEP_TARGET_REACHED", True)
    assert find_spent(spec, SweepUse(1, best=short), 0) is None
    assert find_spent(spec, SweepUse(1), 0) is None


def test_a_mark_is_the_objective_at_the_first_point_that_reaches_its_step() -> None:
    points = [(4, 3.0), (9, 1.0), (12, 2.0), (40, 5.0), (12, 0.5)]  # the last one after a restart
    best, last = ObjectiveRequest(metric="loss"), ObjectiveRequest(metric="loss", value="last")
    curve, marks = add_points(ASHA, best, CurveState(), {}, points)
    assert marks == {10: 1.0, 30: 1.0}
    assert curve == CurveState(step=40, low=0.5, high=5.0, last=0.5)
    assert add_points(ASHA, last, CurveState(), {}, points)[1] == {10: 2.0, 30: 5.0}
    assert add_points(MEDIAN, last, CurveState(), {}, points[:3])[1] == {10: 2.0}
    assert add_points(MEDIAN, last, CurveState(step=12), {10: 2.0}, [(21, 4.0)])[1] == {10: 2.0, 15: 4.0, 20: 4.0}


def test_points_read_in_parts_give_the_same_marks() -> None:
    objective = ObjectiveRequest(metric="loss")
    points = [(step, 100.0 / (step + 1)) for step in range(0, 100, 7)]
    for pruning in (ASHA, MEDIAN):
        whole = add_points(pruning, objective, CurveState(), {}, points)
        curve, marks = CurveState(), dict[int, float]()
        for point in points:
            curve, marks = add_points(pruning, objective, curve, marks, [point])
        assert (curve, marks) == whole
