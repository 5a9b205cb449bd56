"""Brings sweeps forward, one pass at a time.

    claim the due row ─▶ read what its trials' tasks report ─▶ decide (pure) ─▶ act ─▶ start trials ─▶ release

What a pass writes, it writes in transactions that begin with a check of its claim, and an act on a task is in the same
transaction as the trial's row: a pass that dies at any line leaves nothing half done. A trial's row, with its number
and parameters, is stored before its task is made; the transaction that stores the task also names it in the row, so
that whoever comes next either finds the task there or makes it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import transaction

from apps.accounts import access
from apps.common import clock_jumps, pass_claims
from apps.common.claims import ClaimLostError
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.sweeps import observation
from apps.sweeps.models import Sweep, Trial
from apps.training import public as training
from fermi.jobs.spec import Problem
from fermi.sweeps import search
from fermi.sweeps.budget import Spent, SweepUse, find_spent
from fermi.sweeps.decision import OPEN_STATES, RUNNING_STATES, SweepState, TrialAct, TrialState, decide_sweep
from fermi.sweeps.spec import SweepSpec, load_spec
from fermi.sweeps.trial_request import build_trial_request

log = logging.getLogger(__name__)

CLAIM_SPAN = timedelta(seconds=60)
RECHECK_AFTER = timedelta(seconds=3)
"""While trials run."""
PAUSED_RECHECK_AFTER = timedelta(seconds=15)
RETRY_AFTER = timedelta(seconds=30)
"""After something that prevents the start of a trial now."""
MAX_PER_PASS = 20
"""Sweeps that one message handles."""
MAX_STARTS = 20
"""Trials that one pass starts; the next pass comes at once."""


class StartRefusedError(Exception):
    """A trial cannot start now; it is tried again later."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


def reconcile_due_sweeps(limit: int = MAX_PER_PASS) -> int:
    """Run a pass over each sweep that is due, those that have been due longest first. Returns how many there were."""
    clock_jumps.handle_jump()
    rows = pass_claims.filter_due(Sweep.objects.all(), CLAIM_SPAN).order_by("due_at")
    keys = list(rows.values_list("pk", flat=True)[:limit])
    for key in keys:
        reconcile_sweep(key)
    return len(keys)


def reconcile_sweep(sweep_id: str) -> None:
    """Run a pass over a sweep, if it is due and no pass has it. After an error it is due again when the claim has
    lapsed."""
    rows = Sweep.objects.filter(pk=sweep_id)
    claim = pass_claims.PassClaim(rows, CLAIM_SPAN)
    if not claim.taken:
        return
    with claim.kept():
        try:
            wait = SweepPass(sweep_id, claim).run()
        except ClaimLostError:
            return
        except Exception:  # one bad row never stops the rest
            log.exception("sweep %s: the pass failed; it is tried again in %s", sweep_id, RETRY_AFTER)
            wait = RETRY_AFTER
    claim.release(rows, 1, None if wait is None else now() + wait)


class SweepPass:
    """One pass over one sweep."""

    def __init__(self, sweep_id: str, claim: pass_claims.PassClaim) -> None:
        self._claim = claim
        self._sweep = Sweep.objects.select_related("owner").get(pk=sweep_id)
        self._spec: SweepSpec = load_spec(self._sweep.spec)

    def run(self) -> timedelta | None:
        """Return when the next pass is due; None once the sweep has ended."""
        sweep, spec = self._sweep, self._spec
        if sweep.state == SweepState.ENDED:
            return None
        trials = self._read_trials()
        if not self._may_act() and sweep.state != SweepState.STOPPING:
            self._pause("SWEEP_OWNER_LEFT", {"owner": sweep.owner.username})
            return PAUSED_RECHECK_AFTER
        spent = self._find_spent(trials)
        stopped = Spent(sweep.reason, sweep.reason_params) if sweep.state == SweepState.STOPPING else None
        facts = [observation.build_facts(trial) for trial in trials]
        decision = decide_sweep(
            spec, SweepState(sweep.state), facts, spent, stopped=stopped, judged_from=sweep.judged_from
        )
        by_number = {trial.number: trial for trial in trials}
        for act in decision.acts:
            self._act(by_number[act.number], act)
        if decision.ends:
            self._end(decision.ends)
            return None
        if decision.fails:
            self._pause("SWEEP_FAILING", {"count": decision.fails})
            return PAUSED_RECHECK_AFTER
        new = [trial for trial in trials if trial.state == TrialState.NEW]
        try:
            more = self._start_trials(trials, new, decision.starts)
        except StartRefusedError as refused:
            self._explain(refused.problem.code, refused.problem.params)
            return RETRY_AFTER
        if sweep.state == SweepState.RUNNING and sweep.reason:
            self._explain("", {})
        if more or decision.acts:
            return timedelta()
        is_busy = sweep.state == SweepState.RUNNING or any(trial.state in RUNNING_STATES for trial in trials)
        return RECHECK_AFTER if is_busy else PAUSED_RECHECK_AFTER

    @contextmanager
    def _fence(self) -> Iterator[None]:
        """Open a transaction that begins with a check of the claim. Raises ClaimLostError."""
        with transaction.atomic():
            self._check_claim()
            yield

    def _check_claim(self) -> None:
        if self._claim.held_rows.select_for_update(no_key=True).values_list("pk").first() is None:
            raise ClaimLostError(self._sweep.pk)

    def _read_trials(self) -> list[Trial]:
        """Return the trials, after storing what their tasks have reported since the last pass."""
        trials = observation.load_trials(self._sweep.pk)
        counts = self._spec.budget.gpu_hours is not None or self._spec.budget.cost is not None
        for trial in trials:
            if trial.state in OPEN_STATES and (changes := observation.observe_trial(self._spec, trial, counts=counts)):
                with self._fence():
                    Trial.objects.filter(pk=trial.pk, state=trial.state).update(**changes)
                for name, value in changes.items():
                    setattr(trial, name, value)
        self._store_summary(trials)
        return trials

    def _store_summary(self, trials: Sequence[Trial]) -> None:
        best = observation.find_best(self._spec, trials)
        costs = [trial.cost for trial in trials if trial.cost is not None]
        values: dict[str, Any] = {
            "best": best.number if best else None,
            "best_value": best.value if best else None,
            "gpu_hours": sum(trial.gpu_hours for trial in trials),
            "cost": sum(costs) if costs else None,
        }
        if any(getattr(self._sweep, name) != value for name, value in values.items()):
            self._update(**values)

    def _find_spent(self, trials: Sequence[Trial]) -> Spent | None:
        use = SweepUse(len(trials), self._sweep.gpu_hours, self._sweep.cost, self._sweep.best_value)
        if spent := find_spent(self._spec, use, now().timestamp()):
            return spent
        if self._spec.method == "grid" and search.suggest_parameters(self._spec, (), len(trials), "") is None:
            return Spent("SWEEP_GRID_DONE", {"count": len(trials)}, stops=False)
        return None

    def _act(self, trial: Trial, act: TrialAct) -> None:
        """Carry out an act, in one transaction with the trial's row."""
        values: dict[str, Any] = {"rung": max(trial.rung, act.rung)}
        reason = {"reason": act.why.code, "reason_params": dict(act.why.params)}
        with self._fence():
            match act.verb:
                case "advance":
                    pass
                case "pause":
                    values |= {"state": TrialState.PAUSED, **reason}
                    self._steer(training.pause_task, trial)
                case "promote":
                    values |= {"state": TrialState.ACTIVE, **reason}
                    self._steer(training.resume_task, trial)
                case "stop":
                    if act.why.code:  # else what paused it is why it ends
                        values |= reason
                    if trial.task_id is None:
                        values |= {"state": act.ends, "ended_at": now()}
                    else:
                        values |= {"state": TrialState.STOPPING, "ends": act.ends}
                        self._steer(training.stop_task, trial)
            Trial.objects.filter(pk=trial.pk).update(**values)
        for name, value in values.items():
            setattr(trial, name, value)

    def _steer(self, change: Any, trial: Trial) -> None:
        """Pause, resume or stop the trial's task. One that has ended meanwhile stays as it is: the next pass reads
        it. So does one whose sweep's owner has left."""
        try:
            change(self._sweep.owner, trial.task_id)
        except ApiError as error:
            if error.status != 409 and self._may_act():
                raise

    def _start_trials(self, trials: list[Trial], new: Sequence[Trial], count: int) -> bool:
        """Make the tasks of new trials, and further trials up to `count`. Returns True if there is more to start."""
        started = 0
        for trial in new[:MAX_STARTS]:
            self._submit(trial)
            started += 1
        if count and not self._has_code(trials):
            return False
        while count > 0 and started < MAX_STARTS:
            added = self._add_trial(trials)
            if added is None:
                return True  # the next pass ends a grid that has no further combination
            trials.append(added)
            self._submit(added)
            if added.state == TrialState.FAILED or not self._has_code(trials):
                return added.state == TrialState.FAILED  # the next pass judges how many have failed
            started, count = started + 1, count - 1
        return count > 0 or len(new) > MAX_STARTS

    def _has_code(self, trials: Sequence[Trial]) -> bool:
        """Return True if a further trial may start: all run the same code, so those behind the first one wait until
        what it fetched is known."""
        code = self._spec.request.get("code")
        if not isinstance(code, Mapping) or code.get("snapshot") or self._sweep.code:
            return True
        with_task = Trial.objects.filter(sweep=self._sweep, task__isnull=False).select_related("task")
        tasks = [trial.task for trial in with_task.order_by("number")[:MAX_STARTS] if trial.task]
        for task in tasks:
            pinned = training.rebuild_request(self._spec.request, task.spec).get("code") or {}
            if pinned.get("snapshot"):
                self._update(code=pinned)
                return True
        return all(trial.state not in OPEN_STATES for trial in trials)

    def _add_trial(self, trials: Sequence[Trial]) -> Trial | None:
        """Store a trial with the parameters that are next, and return it; None if there are none."""
        number = len(trials)
        history = [observation.build_record(trial) for trial in trials]
        chosen = search.suggest_parameters(self._spec, history, number, self._sweep.pk)
        if chosen is None:
            return None
        with self._fence():
            return Trial.objects.create(
                sweep=self._sweep,
                number=number,
                parameters=chosen.parameters,
                search=chosen.search,
                created_at=now(),
            )

    def _submit(self, trial: Trial) -> None:
        """Make the trial's task. One whose request is refused has failed."""
        sweep = self._sweep
        request = dict(self._spec.request) | ({"code": sweep.code} if sweep.code else {})
        names = [one.name for one in self._spec.space]
        built = build_trial_request(request, names, sweep.pk, sweep.name, trial.number, trial.parameters)

        def attach(task: training.Task) -> None:
            self._check_claim()
            rows = Trial.objects.filter(pk=trial.pk, state=TrialState.NEW, task=None)
            if not rows.update(task=task, state=TrialState.ACTIVE, reason="", reason_params={}):
                raise ClaimLostError(sweep.pk)

        try:
            task = training.submit_request(sweep.owner, built, make_task_key(sweep.pk, trial.number), attach)
        except ProblemsError as refused:
            self._fail(trial, refused.problems[0])
        except ApiError as refused:
            if refused.status in (409, 429):
                raise StartRefusedError(refused.problems[0]) from refused
            self._fail(trial, refused.problems[0])
        else:
            trial.task, trial.state = task, TrialState.ACTIVE

    def _fail(self, trial: Trial, problem: Problem) -> None:
        values = {
            "state": TrialState.FAILED,
            "reason": "TRIAL_REFUSED",
            "reason_params": {
                "field": problem.field or "–",
                "why": problem.code,
                "about": make_storable(problem.params),
            },
            "ended_at": now(),
        }
        with self._fence():
            Trial.objects.filter(pk=trial.pk, state=TrialState.NEW).update(**values)
        for name, value in values.items():
            setattr(trial, name, value)

    def _end(self, why: Spent) -> None:
        self._update(state=SweepState.ENDED, reason=why.code, reason_params=dict(why.params), ended_at=now())

    def _pause(self, code: str, params: dict[str, Any]) -> None:
        if (self._sweep.state, self._sweep.reason) != (SweepState.PAUSED, code):
            self._update(state=SweepState.PAUSED, reason=code, reason_params=params)

    def _may_act(self) -> bool:
        """Return True if the owner may still create and control the tasks of trials."""
        return access.may_act(self._sweep.owner, self._sweep.project_id)

    def _explain(self, code: str, params: Mapping[str, Any]) -> None:
        if (self._sweep.reason, self._sweep.reason_params) != (code, make_storable(params)):
            self._update(reason=code, reason_params=make_storable(params))

    def _update(self, **values: Any) -> None:
        """Update the sweep's row, unless its state has changed since it was loaded: then the next pass decides."""
        with self._fence():
            Sweep.objects.filter(pk=self._sweep.pk, state=self._sweep.state).update(**values)
        for name, value in values.items():
            setattr(self._sweep, name, value)


def make_task_key(sweep_id: str, number: int) -> str:
    """Return the Idempotency-Key of a trial's task."""
    return f"sweep/{sweep_id}/{number}"


def make_storable(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a problem's parameters as JSON holds them."""
    return {
        name: value if isinstance(value, str | int | float | bool | None) else str(value)
        for name, value in params.items()
    }
