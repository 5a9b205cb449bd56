"""Previews a request without creating anything: ranks, environments, files, and what the engine would receive."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from apps.accounts import access
from apps.accounts.models import User
from apps.common.clock import now
from apps.common.errors import cut
from apps.scheduling import pricing
from apps.training.core.engine_access import backend_for, seen_from
from apps.training.presenters import task_presenter
from apps.training.queue import load
from apps.training.services import environment_choice, scaling
from apps.training.services.build import Draft, build
from apps.training.services.environment_choice import environments_field
from fermi.jobs import run_location
from fermi.jobs.spec import SHOWN, JobSpec, Plan, Problem, Rendered, resolve
from fermi.planning import plugins, summary
from fermi.planning.request import TaskRequest
from fermi.scheduler import request_text, scheduler

TASK = "task-preview"


def preview(
    user: User, asked: TaskRequest, request: Mapping[str, Any], wrong: Sequence[Problem] = ()
) -> dict[str, Any]:
    """Return the preview as the API answers it. With problems it contains as much as can be shown. `shape_problems`:
    problems of fields that could not be parsed."""
    draft = build(user, asked, request, TASK, wrong)
    problems = [*draft.problems, *_role(user, draft, asked)]
    shown: dict[str, Any] = {
        "problems": [task_presenter.problem(problem) for problem in cut(problems)],
        "warnings": [task_presenter.warning(warning.code, warning.params) for warning in draft.warnings],
        "chosen": None, "proposal": None, "splits": [], "batch": None, "scaling": None, "worldSize": 0, "nodeCount": 0,
        "masterNode": None,
        "summary": summary.summarise([]), "hourly": None, "inUse": [], "memoryLooking": False,
        "packages": None,
        "environments": [], "ranks": [], "files": [], "artifacts": [], "command": [],
    }  # fmt: skip
    job = draft.job
    if draft.choice.select and draft.choice.environments:
        shown["chosen"] = _chosen(user, draft)
    if job is None:
        return shown
    shown |= {
        "worldSize": job.world_size,
        "nodeCount": len(job.nodes),
        "masterNode": job.master,
        "summary": summary.summarise(job.nodes),
        "hourly": _hourly(draft, job),
        "environments": _environments(draft, job),
        "inUse": draft.using.environments,
        "memoryLooking": draft.using.looking,
        "packages": draft.installed.shown(),
        "proposal": task_presenter.proposal(job),
        "splits": plugins.framework(job.framework).splits(job),
        "batch": task_presenter.batch(job),
        "scaling": task_presenter.expectation(expected) if (expected := scaling.expect(user, job)) else None,
    }
    if (found := rendered(draft)) is None:
        return shown
    plan, sent = found
    files, artifacts = task_presenter.artifacts(sent.to_json()["artifacts"])
    return {
        **shown,
        "ranks": _ranks(plan, named(job)),
        "files": files,
        "artifacts": artifacts,
        "command": [resolve(word, SHOWN) for word in plan.nodes[0].command],
    }


def _chosen(user: User, draft: Draft) -> dict[str, Any]:
    """Return what the platform would choose if the task were created now, and why; if it would wait, for what."""
    asks = environment_choice.waiting(draft.choice, user, TASK, draft.asked)
    scene = load.scene(now(), asks)
    turn = next(turn for turn in scheduler.decide(scene).turns if turn.task == TASK)
    known = {place.id: place for place in scene.places}
    keys = turn.start or tuple(environment.pk for environment in draft.choice.environments)
    places = [known[key] for key in keys if key in known]
    taken = {key for held in scene.held for key in held.places}
    reasons = request_text.explain(asks, places, [place for place in scene.places if place.id not in taken])
    return {
        "nodeIds": list(keys),
        "masterNode": keys[0],
        "zones": sorted({place.zone_name for place in places}),
        "startsNow": bool(turn.start),
        "number": turn.number,
        "begins": datetime.fromtimestamp(turn.begins, UTC) if turn.begins is not None else None,
        "reason": task_presenter.reason(turn.why.code, turn.why.params) if turn.why else None,
        "reasons": [task_presenter.warning(one.code, one.params) for one in reasons],
    }


def _environments(draft: Draft, job: JobSpec) -> list[dict[str, Any]]:
    """Return where the ranks of each environment run. It is None for an environment whose run location is refused: the
    problem says why."""
    refused = {problem.params.get("environment") for problem in draft.problems if problem.field == run_location.FIELD}
    return [
        {
            "environmentId": node.id,
            "name": node.name,
            "runsIn": None if node.name in refused else task_presenter.runs_in(node),
        }
        for node in job.nodes
    ]


def _hourly(draft: Draft, job: JobSpec) -> dict[str, Any] | None:
    """Return the cost of the job's GPUs for an hour at the current prices; None if a price is not known."""
    zones = {environment.pk: environment.zone_id for environment in draft.choice.environments}
    known, moment = pricing.prices(), now()
    each = [(node.gpu_count, known.of(node.gpu_type, zones[node.id], moment)) for node in job.nodes if node.gpu_count]
    amounts = [count * price for count, price in each if price is not None]
    if not amounts or len(amounts) < len(each):
        return None
    return {"amount": sum(amounts), "currency": settings.CURRENCY}


def named(job: JobSpec | None) -> dict[str, str]:
    """Return placeholders for the values of secrets, by variable."""
    return {name: f"<secret {secret}>" for name, secret in job.secret_env.items()} if job else {}


def _role(user: User, draft: Draft, asked: TaskRequest) -> list[Problem]:
    """Return the problem that a viewer may not create the task. Viewers may preview it."""
    project = draft.choice.project
    if project is None or access.is_member(user, project):
        return []
    return [Problem(environments_field(asked), "MEMBER_REQUIRED", {"project": project.name})]


def rendered(draft: Draft) -> tuple[Plan, Rendered] | None:
    """Return the plan of the draft's first attempt and what the engine would receive. Values that break a rule of the
    framework are replaced by their defaults; None if more than that is wrong."""
    job, cluster = draft.job, draft.cluster
    if job is None or cluster is None:
        return None
    framework = plugins.framework(job.framework)
    if broken := framework.problems(job):
        job = _without(job, {problem.field for problem in broken})
        if framework.problems(job):
            return None
    job = seen_from(cluster, job.for_attempt(1, master_port=job.master_port, resume_from=job.resume_from))
    plan = plugins.framework(job.framework).plan(job)
    return plan, backend_for(cluster).render(job, plan)


_VALUES = {
    "options": "distributedConfig.options",
    "strategy": "distributedConfig.strategy",
    "hyperparameters": "hyperparameters",
}


def _without(job: JobSpec, fields: Collection[str]) -> JobSpec:
    """Return the job without the values that `fields`, or fields within them, name."""
    kept = {
        part: {
            name: value
            for name, value in getattr(job, part).items()
            if not any(f"{field}.".startswith(f"{where}.{name}.") for field in fields)
        }
        for part, where in _VALUES.items()
    }
    return replace(job, **kept)  # type: ignore[arg-type]


def _ranks(plan: Plan, secrets: Mapping[str, str]) -> list[dict[str, Any]]:
    rows = []
    for node in plan.nodes:
        shared = {name: resolve(value, SHOWN) for name, value in node.env.items()}
        rows += [
            {
                "rank": process.rank,
                "localRank": process.local_rank,
                "nodeRank": node.node_rank,
                "environmentId": node.node.id,
                "environmentName": node.node.name,
                "device": process.device,
                "env": {**shared, **secrets, **{name: resolve(value, SHOWN) for name, value in process.env.items()}},
            }
            for process in node.processes
        ]
    return rows
