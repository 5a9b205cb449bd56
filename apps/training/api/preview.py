"""Serializes the preview of a request for the API."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from apps.common.texts import render_text
from apps.environments.packages import presenters as package_presenter
from apps.training.presenters import task_presenter
from apps.training.services.build import TaskDraft
from apps.training.services.packages import PackageReport
from apps.training.services.preview import PlatformChoice, TaskPreview, mask_secrets
from fermi.jobs import run_location
from fermi.jobs.spec import LATE_TEXTS, JobSpec, Plan, Problem, Rendered, resolve
from fermi.planning import entry, plugins, summary
from fermi.planning.resume_rules import ProposedRule


def serialize_preview(preview: TaskPreview) -> dict[str, Any]:
    """Return the preview as the API answers it, in the reader's language. What is not known is empty or None."""
    draft, job, scaling = preview.draft, preview.draft.job, preview.scaling
    return {
        "problems": [task_presenter.serialize_problem(problem) for problem in preview.problems],
        "warnings": [task_presenter.serialize_warning(warning.code, warning.params) for warning in draft.warnings],
        "missingArguments": [
            warning.params["argument"] for warning in draft.warnings if warning.code == "SCRIPT_NEEDS_ARGUMENT"
        ],
        "chosen": preview.chosen and _serialize_choice(preview.chosen),
        "worldSize": job.world_size if job else 0,
        "nodeCount": len(job.nodes) if job else 0,
        "masterNode": job and job.master,
        "summary": summary.summarize_nodes(job.nodes if job else []),
        "hourly": None if preview.hourly is None else {"amount": preview.hourly, "currency": settings.CURRENCY},
        "environments": _list_environments(draft, job) if job else [],
        "inUse": draft.using.environments if job else [],
        "memoryLooking": draft.using.looking if job else False,
        "packages": _serialize_packages(draft.installed) if job else None,
        "resume": draft.resume and _serialize_resume_rule(draft.resume),
        "proposal": job and task_presenter.serialize_proposal(job),
        "splits": plugins.get_framework(job.framework).splits(job) if job else [],
        "batch": job and task_presenter.serialize_batch(job),
        "scaling": scaling and task_presenter.serialize_scaling(scaling),
        **_serialize_rendered(preview.rendered, mask_secrets(job)),
    }


def _serialize_resume_rule(proposed: ProposedRule) -> dict[str, Any]:
    rule = proposed.rule
    words = shlex.join(rule.args)
    text = Problem("entrypoint.resume", "RESUME_RULE_PROPOSED", {"found": proposed.found, "words": words})
    return {
        "args": list(rule.args),
        "env": dict(rule.env),
        "itself": rule.itself,
        "message": render_text(text.code, text.params)[0],
    }


def _serialize_rendered(rendered: tuple[Plan, Rendered] | None, secrets: Mapping[str, str]) -> dict[str, Any]:
    if rendered is None:
        return {"ranks": [], "files": [], "artifacts": [], "command": []}
    plan, sent = rendered
    files, artifacts = task_presenter.serialize_artifacts(sent.to_json()["artifacts"])
    ranks = _serialize_ranks(plan, secrets)
    command = [entry.fill_text(resolve(word, LATE_TEXTS), ranks[0]["env"]) for word in plan.nodes[0].command]
    return {"ranks": ranks, "files": files, "artifacts": artifacts, "command": command}


def _serialize_choice(chosen: PlatformChoice) -> dict[str, Any]:
    turn = chosen.turn
    return {
        "nodeIds": list(chosen.keys),
        "masterNode": chosen.keys[0],
        "zones": list(chosen.zones),
        "startsNow": bool(turn.start),
        "number": turn.number,
        "begins": datetime.fromtimestamp(turn.begins, UTC) if turn.begins is not None else None,
        "reason": task_presenter.serialize_reason(turn.why.code, turn.why.params) if turn.why else None,
        "reasons": [task_presenter.serialize_warning(one.code, one.params) for one in chosen.reasons],
    }


def _serialize_packages(report: PackageReport) -> dict[str, Any] | None:
    """Return the package report; None if no rank would run inside of an environment."""
    if not report.surveys:
        return None
    return {
        "python": report.python,
        "environments": [package_presenter.serialize_environment(one) for one in report.surveys],
        "looking": any(one.looking for one in report.surveys),
        "differences": [package_presenter.serialize_difference(one) for one in report.differences],
        "missing": [package_presenter.serialize_missing(one) for one in report.missing],
        "level": report.level,
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
                "env": entry.fill_env(
                    {
                        **shared,
                        **secrets,
                        **{name: resolve(value, LATE_TEXTS) for name, value in process.env.items()},
                    },
                    secrets,
                ),
            }
            for process in node.processes
        ]
    return rows
