"""Diagnoses a task for its reader: the findings, the last lines of its ranks, and which actions the reader may take
now."""

from dataclasses import replace
from typing import Any

from apps.accounts import access
from apps.accounts.models import Role, User
from apps.clusters.models import DevEnvironment
from apps.training.core import checkpoint_choice
from apps.training.logs import pages
from apps.training.models import Task
from apps.training.presenters import findings
from apps.training.reports import diagnosis_facts
from apps.training.services import restart
from apps.training.states import FINAL, Kind, State, allowed_actions
from apps.training.states import Action as Step
from fermi.diagnosis import Action, Evidence, Where, diagnose
from fermi.diagnosis.actions import Do
from fermi.jobs.errors import BackendError

LINES = 30
LOOKED_AT = 300
LONGEST = 500  # characters of a line
BEGINS = "Traceback (most recent call last)"

STACK = "STACK_OF_RANKS"

GOES_ON = {Do.RESTART_FROM_CHECKPOINT, Do.WITHOUT_NODE, Do.USE_SPARE, Do.RESUME, Do.STOP, Do.EDIT_SCRIPT}
"""Actions whose hints say where training would resume."""
CLONES = {Do.RAISE_LIMIT, Do.LOWER_BATCH, Do.CHANGE_FIELD, Do.CHOOSE_OTHERS}


def of(user: User, task: Task) -> dict[str, Any]:
    """Return the diagnosis of the task, as the API answers it. `task` is loaded with its cluster."""
    known = diagnosis_facts.of(task, user)
    found = diagnose.diagnose(known)
    may = _May(user, task)
    have = {
        where.rank
        for one in found.findings
        if any(each.lines for each in one.finding.evidence)
        for where in one.finding.where
        if _is_newest(task, one)
    }
    told = [_with_lines(task, one, have) for one in found.findings]
    return {
        "taskId": task.pk,
        "status": task.state,
        "healthy": found.healthy,
        "summary": findings.said(found.summary)[0],
        "findings": [findings.shown(one, [may.shown(action) for action in one.finding.actions]) for one in told],
        "resumePoint": may.point
        and {
            "step": may.point.step,
            "savedAt": may.point.saved_at,
            "attempt": may.point.attempt,
            "path": may.point.path,
            "stepsLost": may.point.lost,
            "message": may.goes_on,
        },
    }


def _is_newest(task: Task, told: diagnose.Told) -> bool:
    return told.attempt == task.attempt and told.until is None


def _with_lines(task: Task, told: diagnose.Told, have: set[int | None]) -> diagnose.Told:
    """Return the finding with the last lines of the rank that it names, if that rank failed in the newest attempt.
    Beside the stack of a hanging rank they are added only if they contain a traceback, of a thread that it waits for,
    for example. `ranks_with_lines`: ranks whose lines another finding shows."""
    finding, where = told.finding, next((where for where in told.finding.where if where.rank is not None), Where())
    is_end = _is_newest(task, told) and finding.params.get("rank") == where.rank
    hangs = any(one.code == STACK for one in finding.evidence)
    if where.rank is None or not is_end or (where.rank in have and not hangs):
        return told
    lines = _last_lines(task, told.attempt, where.rank)
    if not lines or (hangs and not any(BEGINS in line for line in lines)):
        return told
    evidence = Evidence("LAST_LINES", {"rank": where.rank, "node": where.node}, lines, where)
    return replace(told, finding=replace(finding, evidence=[evidence, *finding.evidence]))


def _last_lines(task: Task, attempt: int, rank: int) -> list[str]:
    """Return the lines from the last traceback on, or the last ones."""
    try:
        found, _, _ = pages.Reader(task, attempt).tail(rank, LOOKED_AT)
    except BackendError:
        return []
    lines = [line.text[:LONGEST] for line in found]
    begins = next((at for at in range(len(lines) - 1, -1, -1) if BEGINS in lines[at]), None)
    if begins is None or len(lines) - begins <= LINES:
        return lines[-LINES:] if begins is None else lines[begins:]
    return [*lines[begins : begins + 3], "…", *lines[3 + 1 - LINES :]]


class _May:
    """Actions that a user may take on the task now."""

    def __init__(self, user: User, task: Task) -> None:
        self.user, self.task = user, task
        self.state = State(task.state)
        self.member = access.is_member(user, task.project_id)
        self.steps = (
            allowed_actions(self.state, changes=self.member, paused=bool(task.paused_at))
            if task.kind == Kind.TRAINING
            else []
        )
        self.environments = dict(task.nodes.values_list("node_rank", "environment_id"))
        self.point = checkpoint_choice.outlook(task)
        self.goes_on = findings.resume_point(self.point, running=self.state is State.RUNNING) if self.point else ""

    def shown(self, action: Action) -> dict[str, Any]:
        """Return the action as the API answers it."""
        environment = self.environments.get(action.params.get("nodeRank", -1))
        if action.code == Do.RESTART_FROM_CHECKPOINT and self.point and self.point.step is not None:
            action = replace(action, params={**action.params, "step": f"{self.point.step:,}"})
        params = {**action.params, **({"environmentId": environment} if environment else {})}
        found = findings.action(action, params, allowed=self._may(Do(action.code), environment))
        return {**found, "hint": f"{found['hint']} {self.goes_on}".strip()} if action.code in GOES_ON else found

    def _may(self, code: Do, environment: str | None) -> bool:
        match code:
            case Do.RESTART_FROM_CHECKPOINT:
                return Step.RETRY in self.steps or (self.state is State.RUNNING and Step.STOP in self.steps)
            case Do.WITHOUT_NODE | Do.USE_SPARE:
                may = Step.RETRY in self.steps or Step.STOP in self.steps
                use_spares = code is Do.USE_SPARE
                return bool(
                    may and environment
                    and restart.can(self.user, self.task, [environment], use_spares=use_spares)
                )  # fmt: skip
            case Do.CORDON:
                open_ones = DevEnvironment.objects.filter(pk=environment, cordoned=False)
                is_maintainer = access.role_in(self.user, self.task.project_id) is Role.MAINTAINER
                return is_maintainer and open_ones.exists()
            case Do.PREFLIGHT:
                return self.member and self.state in FINAL
            case Do.STOP:
                return Step.STOP in self.steps
            case Do.RESUME:
                return Step.RESUME in self.steps
            case Do.ADD_SECRET:
                return access.role_in(self.user, self.task.project_id) is Role.MAINTAINER
            case _ if code in CLONES:
                return Step.CLONE in self.steps
        return True
