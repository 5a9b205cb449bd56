"""What a request would run, without creating anything: ranks, environments, files, and what the engine would be
sent."""

from collections.abc import Mapping
from typing import Any

from apps.accounts.models import User
from apps.training import shapes
from apps.training.launching import backend_for, seen_from
from apps.training.services.build import Draft, build
from fermi.launch import registry, summary
from fermi.launch.spec import Late, Plan, Rendered, Value

TASK = "task-preview"


def preview(user: User, body: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """With problems: as much as can be shown all the same, which is nothing of the plan when a rule is broken."""
    draft = build(user, body, request, TASK)
    shown: dict[str, Any] = {
        "problems": [shapes.problem(problem) for problem in draft.problems],
        "warnings": [shapes.warning(warning.code, warning.params) for warning in draft.warnings],
        "proposal": None, "worldSize": 0, "nodeCount": 0, "masterNode": None, "summary": summary.summarise([]),
        "ranks": [], "files": [], "artifacts": [], "command": [],
    }  # fmt: skip
    job = draft.job
    if job is None:
        return shown
    shown |= {
        "worldSize": job.world_size,
        "nodeCount": len(job.nodes),
        "masterNode": job.master,
        "summary": summary.summarise(job.nodes),
        "proposal": shapes.proposal(job),
    }
    if (found := rendered(draft)) is None:
        return shown
    plan, sent = found
    files, artifacts = shapes.artifacts(sent.to_json()["artifacts"])
    return {
        **shown,
        "ranks": _ranks(plan),
        "files": files,
        "artifacts": artifacts,
        "command": [_word(word) for word in plan.nodes[0].command],
    }


def rendered(draft: Draft) -> tuple[Plan, Rendered] | None:
    """What the draft's first attempt would be; None where a rule is broken."""
    job, cluster = draft.job, draft.cluster
    if job is None or cluster is None or registry.framework(job.framework).problems(job):
        return None
    job = job.for_attempt(1, master_port=job.master_port, resume_from=job.resume_from)
    plan = registry.framework(job.framework).plan(seen_from(cluster, job))
    return plan, backend_for(cluster).render(job, plan)


def _ranks(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    for node in plan.nodes:
        shared = {name: _word(value) for name, value in node.env.items()}
        rows += [
            {
                "rank": process.rank,
                "localRank": process.local_rank,
                "nodeRank": node.node_rank,
                "environmentId": node.node.id,
                "environmentName": node.node.name,
                "device": process.device,
                "env": {**shared, **{name: _word(value) for name, value in process.env.items()}},
            }
            for process in node.processes
        ]
    return rows


def _word(value: Value) -> str:
    """A late value is shown by its name."""
    if isinstance(value, tuple):
        return "".join(_word(piece) for piece in value)
    return f"<{value.value}>" if isinstance(value, Late) else value
