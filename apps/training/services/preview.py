"""Previews a request without creating anything: ranks, environments, files, and what the engine would receive."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from apps.accounts import access
from apps.accounts.models import User
from apps.common.clock import now
from apps.common.errors import limit_problems
from apps.scheduling import pricing
from apps.training.core.engine_access import get_backend, map_paths_to_cluster
from apps.training.presenters import task_presenter
from apps.training.queue import load
from apps.training.services import environment_choice, scaling
from apps.training.services.build import TaskDraft, build_draft
from apps.training.services.environment_choice import get_environments_field
from fermi.jobs import run_location
from fermi.jobs.spec import LATE_TEXTS, JobSpec, Plan, Problem, Rendered, resolve
from fermi.planning import plugins, summary
from fermi.planning.request import TaskRequest
from fermi.scheduler import request_text, scheduler

PREVIEW_TASK_ID = "task-preview"


def preview_task(
    user: User, task_request: TaskRequest, request: Mapping[str, Any], shape_problems: Sequence[Problem] = ()
) -> dict[str, Any]:
    """Return the preview as the API answers it. With problems it contains as much as can be shown. `shape_problems`:
    problems of fields that could not be parsed."""
    draft = build_draft(user, task_request, request, PREVIEW_TASK_ID, shape_problems)
    problems = [*draft.problems, *_check_role(user, draft, task_request)]
    shown: dict[str, Any] = {
        "problems": [task_presenter.serialize_problem(problem) for problem in limit_problems(problems)],
        "warnings": [task_presenter.serialize_warning(warning.code, warning.params) for warning in draft.warnings],
        "chosen": None, "proposal": None, "splits": [], "batch": None, "scaling": None, "worldSize": 0, "nodeCount": 0,
        "masterNode": None,
        "summary": summary.summarize_nodes([]), "hourly": None, "inUse": [], "memoryLooking": False,
        "packages": None,
        "environments": [], "ranks": [], "files": [], "artifacts": [], "command": [],
    }  # fmt: skip
    job = draft.job
    if draft.choice.select and draft.choice.environments:
        shown["chosen"] = _serialize_choice(user, draft)
    if job is None:
        return shown
    shown |= {
        "worldSize": job.world_size,
        "nodeCount": len(job.nodes),
        "masterNode": job.master,
        "summary": summary.summarize_nodes(job.nodes),
        "hourly": _compute_hourly_price(draft, job),
        "environments": _list_environments(draft, job),
        "inUse": draft.using.environments,
        "memoryLooking": draft.using.looking,
        "packages": draft.installed.shown(),
        "proposal": task_presenter.serialize_proposal(job),
        "splits": plugins.get_framework(job.framework).splits(job),
        "batch": task_presenter.serialize_batch(job),
        "scaling": task_presenter.serialize_scaling(expected)
        if (expected := scaling.estimate_scaling(user, job))
        else None,
    }
    if (found := render_draft(draft)) is None:
        return shown
    plan, sent = found
    files, artifacts = task_presenter.serialize_artifacts(sent.to_json()["artifacts"])
    return {
        **shown,
        "ranks": _serialize_ranks(plan, mask_secrets(job)),
        "files": files,
        "artifacts": artifacts,
        "command": [resolve(word, LATE_TEXTS) for word in plan.nodes[0].command],
    }


def _serialize_choice(user: User, draft: TaskDraft) -> dict[str, Any]:
    """Return what the platform would choose if the task were created now, and why; if it would wait, for what."""
    asks = environment_choice.build_waiting_task(draft.choice, user, PREVIEW_TASK_ID, draft.asked)
    scene = load.load_snapshot(now(), asks)
    turn = next(turn for turn in scheduler.make_decision(scene).turns if turn.task == PREVIEW_TASK_ID)
    known = {place.id: place for place in scene.places}
    keys = turn.start or tuple(environment.pk for environment in draft.choice.environments)
    places = [known[key] for key in keys if key in known]
    taken = {key for held in scene.held for key in held.places}
    reasons = request_text.explain_choice(asks, places, [place for place in scene.places if place.id not in taken])
    return {
        "nodeIds": list(keys),
        "masterNode": keys[0],
        "zones": sorted({place.zone_name for place in places}),
        "startsNow": bool(turn.start),
        "number": turn.number,
        "begins": datetime.fromtimestamp(turn.begins, UTC) if turn.begins is not None else None,
        "reason": task_presenter.serialize_reason(turn.why.code, turn.why.params) if turn.why else None,
        "reasons": [task_presenter.serialize_warning(one.code, one.params) for one in reasons],
    }


def _list_environments(draft: TaskDraft, job: JobSpec) -> list[dict[str, Any]]:
    """Return where the ranks of each environment run. It is None for an environment whose run location is refused: the
    problem says why."""
    refused = {problem.params.get("environment") for problem in draft.problems if problem.field == run_location.FIELD}
    return [
        {
            "environmentId": node.id,
            "name": node.name,
            "runsIn": None if node.name in refused else task_presenter.serialize_run_location(node),
        }
        for node in job.nodes
    ]


def _compute_hourly_price(draft: TaskDraft, job: JobSpec) -> dict[str, Any] | None:
    """Return the cost of the job's GPUs for an hour at the current prices; None if a price is not known."""
    zones = {environment.pk: environment.zone_id for environment in draft.choice.environments}
    known, moment = pricing.read_prices(), now()
    each = [(node.gpu_count, known.of(node.gpu_type, zones[node.id], moment)) for node in job.nodes if node.gpu_count]
    amounts = [count * price for count, price in each if price is not None]
    if not amounts or len(amounts) < len(each):
        return None
    return {"amount": sum(amounts), "currency": settings.CURRENCY}


def mask_secrets(job: JobSpec | None) -> dict[str, str]:
    """Return placeholders for the values of secrets, by variable."""
    return {name: f"<secret {secret}>" for name, secret in job.secret_env.items()} if job else {}


def _check_role(user: User, draft: TaskDraft, asked: TaskRequest) -> list[Problem]:
    """Return the problem that a viewer may not create the task. Viewers may preview it."""
    project = draft.choice.project
    if project is None or access.is_member(user, project):
        return []
    return [Problem(get_environments_field(asked), "MEMBER_REQUIRED", {"project": project.name})]


def render_draft(draft: TaskDraft) -> tuple[Plan, Rendered] | None:
    """Return the plan of the draft's first attempt and what the engine would receive. Values that break a rule of the
    framework are replaced by their defaults; None if more than that is wrong."""
    job, cluster = draft.job, draft.cluster
    if job is None or cluster is None:
        return None
    framework = plugins.get_framework(job.framework)
    if broken := framework.problems(job):
        job = _drop_values(job, {problem.field for problem in broken})
        if framework.problems(job):
            return None
    job = map_paths_to_cluster(cluster, job.for_attempt(1, master_port=job.master_port, resume_from=job.resume_from))
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


def _serialize_ranks(plan: Plan, secrets: Mapping[str, str]) -> list[dict[str, Any]]:
    rows = []
    for node in plan.nodes:
        shared = {name: resolve(value, LATE_TEXTS) for name, value in node.env.items()}
        rows += [
            {
                "rank": process.rank,
                "localRank": process.local_rank,
                "nodeRank": node.node_rank,
                "environmentId": node.node.id,
                "environmentName": node.node.name,
                "device": process.device,
                "env": {
                    **shared,
                    **secrets,
                    **{name: resolve(value, LATE_TEXTS) for name, value in process.env.items()},
                },
            }
            for process in node.processes
        ]
    return rows
