"""Previews a request without creating anything: ranks, environments, files, and what the engine would receive."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from apps.accounts import access
from apps.accounts.models import User
from apps.common.clock import now
from apps.common.errors import limit_problems
from apps.scheduling import pricing
from apps.training.core.engine_access import fit_job_to_cluster, get_backend
from apps.training.core.tracking_server import add_tracking_variables
from apps.training.queue import load
from apps.training.services import environment_choice, scaling
from apps.training.services.build import TaskDraft, build_draft
from apps.training.services.environment_choice import EnvironmentChoice
from apps.training.states import TaskKind
from fermi.jobs.spec import JobSpec, Plan, Problem, Rendered
from fermi.planning import plugins
from fermi.planning.request import ParsedRequest
from fermi.planning.scaling import ScalingEstimate
from fermi.scheduler import request_text, scheduler
from fermi.scheduler.snapshot import QueueEntry

PREVIEW_TASK_ID = "task-preview"


@dataclass(frozen=True, slots=True)
class PlatformChoice:
    """Environments that the platform would choose if the task were created now. `keys`: their ids, the master's first;
    `turn`: when the task would start, and for what it would wait; `reasons`: why these."""

    keys: Sequence[str]
    zones: Sequence[str]
    turn: QueueEntry
    reasons: Sequence[Problem]


@dataclass(frozen=True, slots=True)
class TaskPreview:
    """What a request would run; with `problems` as much of it as can be shown. `hourly`: cost of its GPUs for an hour,
    None if a price is not known; `rendered`: the plan of the first attempt and what the engine would receive."""

    draft: TaskDraft
    problems: Sequence[Problem]
    chosen: PlatformChoice | None = None
    hourly: Decimal | None = None
    scaling: ScalingEstimate | None = None
    rendered: tuple[Plan, Rendered] | None = None


def preview_task(user: User, parsed: ParsedRequest) -> TaskPreview:
    """Return the preview of a request."""
    draft = build_draft(user, parsed, PREVIEW_TASK_ID)
    problems = limit_problems([*draft.problems, *_check_role(user, draft.choice)])
    chosen = _choose_environments(user, draft) if draft.choice.select and draft.choice.environments else None
    job = draft.job
    if job is None:
        return TaskPreview(draft, problems, chosen)
    hourly, expected = _compute_hourly_price(draft, job), scaling.estimate_scaling(user, job)
    return TaskPreview(draft, problems, chosen, hourly, expected, render_draft(draft))


def _choose_environments(user: User, draft: TaskDraft) -> PlatformChoice:
    """Return what the platform would choose if the task were created now, and why; if it would wait, for what."""
    asks = environment_choice.build_waiting_task(user, draft.parsed.task, draft.choice, PREVIEW_TASK_ID)
    scene = load.load_snapshot(now(), asks)
    turn = next(turn for turn in scheduler.make_decision(scene).turns if turn.task == PREVIEW_TASK_ID)
    known = {place.id: place for place in scene.places}
    keys = turn.start or tuple(environment.pk for environment in draft.choice.environments)
    places = [known[key] for key in keys if key in known]
    taken = {key for held in scene.running for key in held.places}
    reasons = request_text.explain_choice(asks, places, [place for place in scene.places if place.id not in taken])
    return PlatformChoice(keys, sorted({place.zone_name for place in places}), turn, reasons)


def _compute_hourly_price(draft: TaskDraft, job: JobSpec) -> Decimal | None:
    """Return the cost of the job's GPUs for an hour at the current prices; None if a price is not known."""
    zones = {environment.pk: environment.zone_id for environment in draft.choice.environments}
    known, moment = pricing.read_prices(), now()
    each = [
        (node.gpu_count, known.find_price(node.gpu_type, zones[node.id], moment))
        for node in job.nodes
        if node.gpu_count
    ]
    amounts = [count * price for count, price in each if price is not None]
    if not amounts or len(amounts) < len(each):
        return None
    return sum(amounts, Decimal())


def mask_secrets(job: JobSpec | None) -> dict[str, str]:
    """Return placeholders for the values of secrets, by variable."""
    return {name: f"<secret {secret}>" for name, secret in job.secret_env.items()} if job else {}


def _check_role(user: User, choice: EnvironmentChoice) -> list[Problem]:
    """Return the problem that a viewer may not create the task. Viewers may preview it."""
    if choice.project is None or access.is_member(user, choice.project):
        return []
    return [Problem(choice.where, "MEMBER_REQUIRED", {"project": choice.project.name})]


def render_draft(draft: TaskDraft) -> tuple[Plan, Rendered] | None:
    """Return the plan of the draft's first attempt and what the engine would receive. Values that break a rule of the
    framework are replaced by their defaults; None if more than that is wrong."""
    job, cluster = draft.job, draft.choice.cluster
    if job is None or cluster is None:
        return None
    framework = plugins.get_framework(job.framework)
    if broken := framework.problems(job):
        job = _drop_values(job, {problem.field for problem in broken})
        if framework.problems(job):
            return None
    job = add_tracking_variables(cluster, TaskKind.TRAINING, job)
    job = fit_job_to_cluster(cluster, job.for_attempt(1, master_port=job.master_port, resume_from=job.resume_from))
    plan = plugins.get_framework(job.framework).plan(job)
    return plan, get_backend(cluster).render(job, plan)


_VALUE_FIELDS = {
    "options": "distributedConfig.options",
    "strategy": "distributedConfig.strategy",
    "hyperparameters": "hyperparameters",
}


def _drop_values(job: JobSpec, fields: Collection[str]) -> JobSpec:
    """Return the job without the values that `fields`, or fields within them, name."""
    kept = {
        part: {
            name: value
            for name, value in getattr(job, part).items()
            if not any(f"{field}.".startswith(f"{where}.{name}.") for field in fields)
        }
        for part, where in _VALUE_FIELDS.items()
    }
    return replace(job, **kept)  # type: ignore[arg-type]
