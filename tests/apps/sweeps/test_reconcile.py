"""Passes over sweeps: what they start, pause, resume and stop, and that killing one at any line loses and doubles
nothing."""

from typing import Any

import pytest

from apps.accounts.models import Membership, User
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.sweeps import reconcile
from apps.sweeps.models import Sweep, Trial
from apps.sweeps.services import lifecycle
from apps.training.models import MetricPoint, MetricSummary, Task, TaskParameter
from apps.training.states import TaskState
from tests.apps.sweeps.lives import (
    REQUEST,
    end_stopped_tasks,
    end_task,
    list_states,
    make_sweep,
    report,
    run_pass,
    train,
)
from tests.kills import run_until_killed

pytestmark = [pytest.mark.django_db, pytest.mark.database]
ASHA = {"method": "asha", "minSteps": 10, "maxSteps": 90, "reduction": 3}


def get_trial(sweep: Sweep, number: int) -> Trial:
    return Trial.objects.select_related("task").get(sweep=sweep, number=number)


def test_trials_are_tasks_that_fill_gaps_and_have_their_parameters(member: User) -> None:
    sweep = run_pass(make_sweep(member))
    assert list_states(sweep) == ["active", "active"]
    trial = get_trial(sweep, 0)
    task = trial.task
    assert task
    assert (task.name, task.priority < 0, task.preemptible, task.owner) == ("trial #0", True, True, member)
    assert task.idempotency_key == f"sweep/{sweep.pk}/0"
    assert task.spec["entrypoint"]["args"] == [f"--lr={trial.parameters['lr']}"]
    assert task.spec["env"]["FERMI_PARAM_LR"] == str(trial.parameters["lr"])
    row = TaskParameter.objects.get(task=task, name="lr")
    assert (row.number, row.source) == (trial.parameters["lr"], "request")


def test_a_sweep_runs_all_trials_of_its_budget_and_names_the_best(member: User) -> None:
    sweep = make_sweep(member)
    for _ in range(4):
        run_pass(sweep)
        for trial in Trial.objects.filter(sweep=sweep, state="active"):
            report(trial, (1, trial.number + 2.0), (2, abs(trial.number - 3.0)), (3, 9.0))
            end_task(trial.task_id)
    run_pass(sweep)
    assert (sweep.state, sweep.reason, sweep.reason_params) == ("ended", "SWEEP_TRIALS_DONE", {"count": 6})
    assert (sweep.due_at, sweep.claimed_at) == (None, None)
    assert list_states(sweep) == ["complete"] * 6
    assert (sweep.best, sweep.best_value) == (3, 0.0)
    assert get_trial(sweep, 1).value == 2.0


def test_the_objective_of_an_ended_trial_is_that_of_all_points_also_of_thinned_ones(member: User) -> None:
    sweep = run_pass(make_sweep(member, objective={"metric": "loss", "value": "last"}))
    trial = get_trial(sweep, 0)
    report(trial, (1, 5.0))
    assert trial.task_id
    MetricSummary.objects.create(
        task_id=trial.task_id, name="loss", count=9, last=3.0, last_step=8, low=1.0, low_step=4, high=7.0, high_step=2
    )
    run_pass(sweep)
    assert get_trial(sweep, 0).value == 5.0
    end_task(trial.task_id)
    run_pass(sweep)
    found = get_trial(sweep, 0)
    assert (found.state, found.value, found.value_step) == ("complete", 3.0, 8)


def test_a_trial_without_the_metric_has_failed_and_says_so(member: User) -> None:
    sweep = run_pass(make_sweep(member))
    end_task(get_trial(sweep, 0).task_id)
    report(get_trial(sweep, 1), (1, 1.0))
    end_task(get_trial(sweep, 1).task_id, TaskState.FAILED, "RANK_FAILED")
    run_pass(sweep)
    first, second = get_trial(sweep, 0), get_trial(sweep, 1)
    assert (first.state, first.reason, first.reason_params) == ("failed", "TRIAL_WITHOUT_METRIC", {"metric": "loss"})
    assert (second.state, second.reason) == ("failed", "RANK_FAILED")


def test_rungs_pause_a_trial_and_a_promotion_resumes_it(member: User) -> None:
    sweep = run_pass(make_sweep(member, pruning=ASHA, parallel=1))
    report(get_trial(sweep, 0), (10, 1.0))
    run_pass(sweep)
    first = get_trial(sweep, 0)
    assert first.task
    assert (first.state, first.reason, first.task.paused_at is None) == ("paused", "TRIAL_BELOW_RUNG", False)
    for number in (1, 2):
        report(get_trial(sweep, number), (10, 2.0 + number))
        run_pass(sweep)
    first = get_trial(sweep, 0)
    assert first.task
    assert (first.state, first.reason, first.rung, first.task.paused_at) == ("active", "TRIAL_PROMOTED", 1, None)
    assert list_states(sweep) == ["active", "paused", "paused"]


def test_the_median_rule_stops_a_bad_trial(member: User) -> None:
    pruning = {"method": "median", "minSteps": 10, "startTrials": 2}
    sweep = run_pass(make_sweep(member, pruning=pruning, parallel=3))
    for number, value in enumerate((1.0, 2.0, 9.0)):
        report(get_trial(sweep, number), (10, value))
    run_pass(sweep)
    bad = get_trial(sweep, 2)
    assert bad.task
    assert (bad.state, bad.reason, bad.task.stop_requested_at is None) == ("stopping", "TRIAL_BELOW_MEDIAN", False)
    end_stopped_tasks()
    run_pass(sweep)
    assert (get_trial(sweep, 2).state, get_trial(sweep, 2).reason) == ("pruned", "TRIAL_BELOW_MEDIAN")


def test_stopping_a_sweep_stops_its_trials_first(member: User) -> None:
    sweep = run_pass(make_sweep(member))
    lifecycle.stop_sweep(member, sweep.pk)
    run_pass(sweep)
    assert (sweep.state, list_states(sweep)) == ("stopping", ["stopping", "stopping"])
    end_stopped_tasks()
    run_pass(sweep)
    assert (sweep.state, sweep.reason, list_states(sweep)) == ("ended", "SWEEP_STOPPED", ["stopped", "stopped"])
    assert sweep.reason_params == {"by": "member"}


def test_a_paused_sweep_starts_nothing_and_its_trials_go_on(member: User) -> None:
    sweep = run_pass(make_sweep(member))
    lifecycle.pause_sweep(member, sweep.pk)
    report(get_trial(sweep, 0), (1, 1.0))
    end_task(get_trial(sweep, 0).task_id)
    run_pass(sweep)
    assert (sweep.state, list_states(sweep)) == ("paused", ["complete", "active"])
    lifecycle.resume_sweep(member, sweep.pk)
    run_pass(sweep)
    assert (sweep.state, sweep.reason, list_states(sweep)) == ("running", "", ["complete", "active", "active"])


@pytest.mark.parametrize("how", ["left", "inactive"])
def test_a_sweep_whose_owner_has_left_pauses_and_goes_on_under_the_name_of_who_resumes_it(
    member: User, how: str
) -> None:
    sweep = run_pass(make_sweep(member))
    other = User.objects.create_user("other")
    Membership.objects.create(user=other, project_id="p", role="member")
    if how == "left":
        Membership.objects.filter(user=member).delete()
    else:
        User.objects.filter(pk=member.pk).update(is_active=False)
    report(get_trial(sweep, 0), (1, 1.0))
    end_task(get_trial(sweep, 0).task_id)
    for _ in range(2):
        run_pass(sweep)
        assert (sweep.state, sweep.reason, sweep.reason_params) == ("paused", "SWEEP_OWNER_LEFT", {"owner": "member"})
        assert list_states(sweep) == ["complete", "active"]
    lifecycle.resume_sweep(other, sweep.pk)
    run_pass(sweep)
    assert (sweep.state, sweep.owner, list_states(sweep)) == ("running", other, ["complete", "active", "active"])
    task = get_trial(sweep, 2).task
    assert task
    assert task.owner == other


def test_who_stops_the_sweep_of_a_person_who_left_stops_its_trials(member: User) -> None:
    sweep = run_pass(make_sweep(member))
    other = User.objects.create_user("other")
    Membership.objects.create(user=other, project_id="p", role="member")
    Membership.objects.filter(user=member).delete()
    lifecycle.stop_sweep(other, sweep.pk)
    run_pass(sweep)
    assert (sweep.state, list_states(sweep)) == ("stopping", ["stopping", "stopping"])


def test_gpu_hours_beyond_the_budget_stop_the_sweep(member: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.training.public.report_task_usage", lambda task: {"gpuHours": 3.0, "cost": None})
    sweep = run_pass(make_sweep(member, budget={"gpuHours": 5}))
    run_pass(sweep)
    assert (list_states(sweep), sweep.gpu_hours) == (["stopping", "stopping"], 6.0)
    end_stopped_tasks()
    run_pass(sweep)
    assert (sweep.state, sweep.reason) == ("ended", "SWEEP_GPU_HOURS_SPENT")


def test_trials_that_all_fail_pause_the_sweep_before_the_budget_is_spent(member: User) -> None:
    sweep = run_pass(make_sweep(member, budget={"trials": 100}))
    for _ in range(10):
        for trial in Trial.objects.filter(sweep=sweep, state="active"):
            end_task(trial.task_id, TaskState.FAILED, "RANK_FAILED")
        run_pass(sweep)
    assert (sweep.state, sweep.reason) == ("paused", "SWEEP_FAILING")
    assert sweep.trials.count() < 10
    lifecycle.resume_sweep(member, sweep.pk)
    run_pass(sweep)
    assert sweep.state == "running"


def test_a_request_that_is_refused_fails_the_trial_with_its_reason(member: User) -> None:
    sweep = make_sweep(member)
    DevEnvironment.objects.all().delete()
    run_pass(sweep)
    trial = get_trial(sweep, 0)
    assert (trial.state, trial.reason, trial.task) == ("failed", "TRIAL_REFUSED", None)


def test_a_deleted_task_ends_its_trial(member: User) -> None:
    sweep = run_pass(make_sweep(member))
    Task.objects.filter(pk=get_trial(sweep, 0).task_id).delete()
    run_pass(sweep)
    assert (get_trial(sweep, 0).state, get_trial(sweep, 0).reason) == ("failed", "TRIAL_TASK_DELETED")


def test_all_trials_run_the_code_that_the_first_one_fetched(member: User) -> None:
    request = {**REQUEST, "code": {"git": {"url": "https://example.org/code.git"}}}
    sweep = run_pass(make_sweep(member, request=request))
    assert list_states(sweep) == ["active"]
    run_pass(sweep)
    assert list_states(sweep) == ["active"]
    task = get_trial(sweep, 0).task
    assert task
    code = {"snapshot": "a" * 64, "source": {"git": {"url": "https://example.org/code.git", "revision": "HEAD"}}}
    Task.objects.filter(pk=task.pk).update(spec={**task.spec, "code": {**task.spec["code"], **code}})
    run_pass(sweep)
    assert sweep.code["snapshot"] == "a" * 64


def test_a_pass_that_has_lost_its_claim_writes_nothing(member: User, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = make_sweep(member)
    before = reconcile.search.suggest_parameters

    def suggest(*args: Any) -> Any:
        Sweep.objects.filter(pk=sweep.pk).update(claimed_at=now())
        return before(*args)

    monkeypatch.setattr(reconcile.search, "suggest_parameters", suggest)
    run_pass(sweep)
    assert not Trial.objects.exists()
    assert not Task.objects.exists()


WATCHED = ("apps/sweeps/reconcile.py", "apps/sweeps/observation.py", "apps/training/services/create.py")
"""The pass is killed in these files alone."""
EVERY = 37


def live(member: User, every: int, first: int) -> int:
    """Run a sweep with rungs to its end, killing every other pass: the first one at its line `first`, each later one
    `every` lines later. Return the lines of its longest pass. Each step of each trial is trained once."""
    sweep = make_sweep(member, pruning=ASHA, budget={"trials": 5})
    dies_at, longest = first, 0
    for number in range(200):
        longest = max(longest, run_until_killed(lambda: run_pass(sweep), WATCHED, 0 if number % 2 else dies_at))
        dies_at += 0 if number % 2 else every
        sweep.refresh_from_db()
        if sweep.state == "ended":
            break
        end_stopped_tasks()
        for trial in Trial.objects.filter(sweep=sweep, state="active").select_related("task"):
            train(trial, 90)
    assert sweep.state == "ended", list_states(sweep)
    assert sweep.reason == "SWEEP_TRIALS_DONE"
    trials = list(sweep.trials.order_by("number"))
    assert [trial.number for trial in trials] == [0, 1, 2, 3, 4]
    tasks = Task.objects.filter(idempotency_key__startswith=f"sweep/{sweep.pk}/")
    assert sorted(tasks.values_list("pk", flat=True)) == sorted(str(trial.task_id) for trial in trials)
    assert {trial.state for trial in trials} == {"complete", "pruned"}
    for trial in trials:
        steps = list(MetricPoint.objects.filter(task=trial.task_id).order_by("pk").values_list("step", flat=True))
        assert steps == list(range(10, 10 * len(steps) + 1, 10))
        assert trial.value == trial.parameters["lr"]
    best = min(trials, key=lambda trial: trial.parameters["lr"])
    assert sweep.best in {trial.number for trial in trials if trial.state == "complete"}
    assert best.state == "complete"
    return longest


def test_a_sweep_ends_right_wherever_its_passes_are_killed(member: User) -> None:
    longest = live(member, 0, 0)
    assert longest > EVERY
    for first in range(1, min(longest, 6 * EVERY), EVERY):
        live(member, 7, first)
