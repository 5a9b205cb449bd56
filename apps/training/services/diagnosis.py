"""Diagnoses a task for its reader: the findings, the last lines of its ranks, and which actions the reader may take
now."""

from dataclasses import replace
from typing import NamedTuple

from apps.accounts import access
from apps.accounts.models import Role, User
from apps.clusters.models import DevEnvironment
from apps.training.core import checkpoint_choice, code
from apps.training.core.engine_access import get_backend
from apps.training.logs import pages
from apps.training.models import Task
from apps.training.reports import diagnosis_facts
from apps.training.services import restart
from apps.training.states import FINAL_STATES, TaskKind, TaskState, allowed_actions
from apps.training.states import TaskAction as Step
from fermi.diagnosis import Action, Evidence, Where, diagnose
from fermi.diagnosis.actions import ActionCode
from fermi.jobs.errors import BackendError, UnknownNameError
from fermi.jobs.spec import JobSpec, ResumeRule
from fermi.messages import NestedText
from fermi.planning.entry import MAX_SCRIPT_BYTES
from fermi.planning.resume_rules import propose_resume_rule

MAX_LINES = 30
MAX_LINES_READ = 300
MAX_LINE_LENGTH = 500  # characters of a line
TRACEBACK_START = "Traceback (most recent call last)"

STACK_EVIDENCE = "STACK_OF_RANKS"

CLONING_ACTIONS = {ActionCode.RAISE_LIMIT, ActionCode.LOWER_BATCH, ActionCode.CHANGE_FIELD, ActionCode.CHOOSE_OTHERS}


class OfferedAction(NamedTuple):
    """An action that a finding suggests. `environment`: the one that it concerns; `allowed`: the reader may take it
    now."""

    action: Action
    environment: str | None
    allowed: bool


class TaskDiagnosis(NamedTuple):
    """The diagnosis of a task: each finding with its actions, and from where training would resume."""

    task: Task
    healthy: bool
    summary: NestedText
    findings: list[tuple[diagnose.StoredFinding, list[OfferedAction]]]
    resume_point: checkpoint_choice.ResumePoint | None


def diagnose_task(user: User, task: Task) -> TaskDiagnosis:
    """Return the diagnosis of the task, which is loaded with its cluster."""
    may = _AllowedActions(user, task)
    known = replace(diagnosis_facts.build_facts(task, user), restart_loss=_find_restart_loss(task, may.point))
    found = diagnose.diagnose(known)
    have = {
        where.rank
        for one in found.findings
        if any(each.lines for each in one.finding.evidence)
        for where in one.finding.where
        if _is_newest(task, one)
    }
    shown = [
        (_add_last_lines(task, one, have), [may.offer_action(action) for action in one.finding.actions])
        for one in found.findings
    ]
    return TaskDiagnosis(task, found.healthy, found.summary, shown, may.point)


def _find_restart_loss(task: Task, point: checkpoint_choice.ResumePoint | None) -> diagnose.RestartLoss | None:
    """Return what a restart would lose where nothing tells the script to resume, with the rule that its text shows."""
    if point is None or point.knows_how or point.seconds is None:
        return None
    if point.seconds < diagnose.MIN_LOST_SECONDS:  # said by nobody: the script need not be read
        return None
    rule = _propose_rule(task)
    return diagnose.RestartLoss(point.seconds, point.step, " ".join(rule.args) if rule else "")


def _propose_rule(task: Task) -> ResumeRule | None:
    job = JobSpec.from_json(task.spec)
    try:
        text = get_backend(task.cluster).entry_text(job, MAX_SCRIPT_BYTES) or code.read_entry_text(job)
    except (BackendError, UnknownNameError, OSError):
        return None
    found = propose_resume_rule(text) if text else None
    return found.rule if found else None


def _is_newest(task: Task, stored: diagnose.StoredFinding) -> bool:
    return stored.attempt == task.attempt and stored.until is None


def _add_last_lines(
    task: Task, stored: diagnose.StoredFinding, ranks_with_lines: set[int | None]
) -> diagnose.StoredFinding:
    """Return the finding with the last lines of the rank that it names, if that rank failed in the newest attempt.
    Beside the stack of a hanging rank they are added only if they contain a traceback, of a thread that it waits for,
    for example. `ranks_with_lines`: ranks whose lines another finding shows."""
    finding, where = stored.finding, next((where for where in stored.finding.where if where.rank is not None), Where())
    is_end = _is_newest(task, stored) and finding.params.get("rank") == where.rank
    hangs = any(one.code == STACK_EVIDENCE for one in finding.evidence)
    if where.rank is None or not is_end or (where.rank in ranks_with_lines and not hangs):
        return stored
    lines = _read_last_lines(task, stored.attempt, where.rank)
    if not lines or (hangs and not any(TRACEBACK_START in line for line in lines)):
        return stored
    evidence = Evidence("LAST_LINES", {"rank": where.rank, "node": where.node}, lines, where)
    return replace(stored, finding=replace(finding, evidence=[evidence, *finding.evidence]))


def _read_last_lines(task: Task, attempt: int, rank: int) -> list[str]:
    """Return the lines from the last traceback on, or the last ones."""
    try:
        found, _, _ = pages.LogPageReader(task, attempt).tail(rank, MAX_LINES_READ)
    except BackendError:
        return []
    lines = [line.text[:MAX_LINE_LENGTH] for line in found]
    begins = next((at for at in range(len(lines) - 1, -1, -1) if TRACEBACK_START in lines[at]), None)
    if begins is None or len(lines) - begins <= MAX_LINES:
        return lines[-MAX_LINES:] if begins is None else lines[begins:]
    return [*lines[begins : begins + 3], "…", *lines[3 + 1 - MAX_LINES :]]


class _AllowedActions:
    """Actions that a user may take on the task now."""

    def __init__(self, user: User, task: Task) -> None:
        self.user, self.task = user, task
        self.state = TaskState(task.state)
        self.member = access.is_member(user, task.project_id)
        self.steps = (
            allowed_actions(self.state, changes=self.member, paused=bool(task.paused_at))
            if task.kind == TaskKind.TRAINING
            else []
        )
        self.environments = dict(task.nodes.values_list("node_rank", "environment_id"))
        self.point = checkpoint_choice.find_resume_point(task)

    def offer_action(self, action: Action) -> OfferedAction:
        """Return the action with whether the user may take it."""
        environment = self.environments.get(action.params.get("nodeRank", -1))
        if action.code == ActionCode.RESTART_FROM_CHECKPOINT and self.point and self.point.step is not None:
            action = replace(action, params={**action.params, "step": f"{self.point.step:,}"})
        return OfferedAction(action, environment, self._may(ActionCode(action.code), environment))

    def _may(self, code: ActionCode, environment: str | None) -> bool:
        match code:
            case ActionCode.RESTART_FROM_CHECKPOINT:
                return Step.RETRY in self.steps or (self.state is TaskState.RUNNING and Step.STOP in self.steps)
            case ActionCode.WITHOUT_NODE | ActionCode.USE_SPARE:
                may = Step.RETRY in self.steps or Step.STOP in self.steps
                use_spares = code is ActionCode.USE_SPARE
                return bool(
                    may and environment
                    and restart.can_restart(self.user, self.task, [environment], use_spares=use_spares)
                )  # fmt: skip
            case ActionCode.CORDON:
                open_ones = DevEnvironment.objects.filter(pk=environment, cordoned=False)
                is_maintainer = access.get_role(self.user, self.task.project_id) is Role.MAINTAINER
                return is_maintainer and open_ones.exists()
            case ActionCode.PREFLIGHT:
                return self.member and self.state in FINAL_STATES
            case ActionCode.STOP:
                return Step.STOP in self.steps
            case ActionCode.RESUME:
                return Step.RESUME in self.steps
            case ActionCode.ADD_SECRET:
                return access.get_role(self.user, self.task.project_id) is Role.MAINTAINER
            case _ if code in CLONING_ACTIONS:
                return Step.CLONE in self.steps
        return True
