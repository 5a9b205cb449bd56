"""Reads what is known of a run: from its task's snapshot, its parameters, what its nodes reported, and its usage."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Max, Min

from apps.training.public import (
    AttemptFacts,
    MetricPoint,
    Task,
    TaskParameter,
    list_newest_facts,
    report_task_usage,
    serialize_batch,
)
from fermi.jobs import credentials
from fermi.jobs.arguments import parse_arguments
from fermi.jobs.spec import JobSpec, Node
from fermi.runs.differences import RunFacts, RunNode
from fermi.scheduler.ledger import PART_NAMES

MACHINE_NAMES = ("python", "cuda", "rocm", "driver", "cpu", "cores", "kernel")
MAX_PARAMETERS = 1000


def read_run_facts(task: Task) -> RunFacts:
    """Return what is known of a run. `task`: with its dataset version and model."""
    job, reported = JobSpec.from_json(task.spec), list_newest_facts(task.pk)
    values: dict[str, Any] = next((row.values for row in reported if "script" in row.values), {})
    code, script = job.code, values.get("script") or {}
    batch = serialize_batch(job) or {}
    usage = report_task_usage(task)
    attempts = task.attempts.count()
    return RunFacts(
        task.pk,
        task.name,
        task.framework,
        _name_data(task, job),
        task.model.name if task.model else "",
        code.snapshot if code else "",
        (script.get("path", ""), script.get("sha256", "")),
        (code.origin.get("commit") if code else "") or (values.get("git") or {}).get("commit", ""),
        read_parameters(task.pk, job),
        list_settings(job),
        batch.get("effective"),
        job.world_size,
        tuple(sorted({node.image for node in job.nodes if node.image})),
        _list_nodes(job, reported),
        attempts,
        _count_lost_steps(task.pk) if attempts > 1 else 0,
        {"queued": usage["queuedSeconds"], **{part: usage[part] for part in PART_NAMES}},
    )


def _name_data(task: Task, job: JobSpec) -> str:
    if task.dataset_version:
        return f"{task.dataset_version.dataset.name} {task.dataset_version.name}"
    return job.train_data


def read_parameters(task_id: str, job: JobSpec) -> dict[str, str]:
    """Return the parameters that are known of a run: those that it was requested with or told a tracker, and the
    arguments of its command. Values that look like secrets are masked."""
    words = (*job.entrypoint.command[1:], *job.entrypoint.args) if job.entrypoint else ()
    found = parse_arguments(words)
    rows = TaskParameter.objects.filter(task=task_id).order_by("name").values_list("name", "value")[:MAX_PARAMETERS]
    return credentials.mask_secrets({**found, **dict(rows)})


def list_settings(job: JobSpec) -> dict[str, str]:
    """Return what a request sets besides parameters, as far as it changes what is computed."""
    found = {f"strategy.{name}": value for name, value in job.strategy.items()}
    found |= {f"options.{name}": value for name, value in job.options.items()}
    entry = " ".join(job.entrypoint.words) if job.entrypoint else job.recipe
    found |= {"entrypoint": entry, "backend": job.backend, "resumeFrom": job.resume_from}
    return {name: _format_setting(value) for name, value in found.items() if value not in (None, "")}


def _format_setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _list_nodes(job: JobSpec, reported: list[AttemptFacts]) -> tuple[RunNode, ...]:
    """Return the nodes of a run, each with what it reported in the newest attempt."""
    by_name = {row.node: row for row in reported}
    return tuple(_build_node(node, by_name.get(node.name)) for node in job.nodes)


def _build_node(node: Node, row: AttemptFacts | None) -> RunNode:
    values: Mapping[str, Any] = row.values if row else {}
    known = {name: str(values[name]) for name in MACHINE_NAMES if name in values}
    for name in ("python", "driver"):
        if not row and node.versions.get(name):
            known[name] = node.versions[name]
    return RunNode(
        node.name,
        node.gpu_type,
        node.gpu_count,
        known,
        row.packages.items if row and row.packages else None,
        row.variables.items if row and row.variables else None,
    )


def _count_lost_steps(task_id: str) -> int:
    """Return how many steps were made more than once: how far each attempt lies behind the one before it."""
    rows = MetricPoint.objects.filter(task=task_id, rank=0).values("attempt").order_by("attempt")
    lost, reached = 0, 0
    for _, first, last in rows.annotate(first=Min("step"), last=Max("step")).values_list("attempt", "first", "last"):
        lost += max(0, reached - first)
        reached = max(reached, last)
    return lost


def serialize_facts(task: Task, attempt: int | None) -> dict[str, Any]:
    """Return what the nodes of an attempt reported, by default of the newest that has some. A set that several nodes
    have is in it once."""
    rows = list_newest_facts(task.pk, attempt)
    sets = {row.packages.pk: row.packages for row in rows if row.packages}
    return {
        "taskId": task.pk,
        "attempt": rows[0].attempt if rows else None,
        "nodes": [_serialize_node(row) for row in rows],
        "packageSets": [
            {"id": key, "packages": [{"name": name, "version": one.items[name]} for name in sorted(one.items)]}
            for key, one in sets.items()
        ],
    }


def _serialize_node(row: AttemptFacts) -> dict[str, Any]:
    values = row.values
    return {
        "nodeRank": row.node_rank,
        "name": row.node,
        "python": values.get("python", ""),
        "executable": values.get("executable", ""),
        "cuda": values.get("cuda", ""),
        "rocm": values.get("rocm", ""),
        "driver": values.get("driver", ""),
        "kernel": values.get("kernel", ""),
        "cpu": values.get("cpu", ""),
        "cores": values.get("cores"),
        "gpus": [{"type": kind, "count": count} for kind, count in values.get("gpus", {}).items()],
        "script": values.get("script"),
        "commit": (values.get("git") or {}).get("commit", ""),
        "branch": (values.get("git") or {}).get("branch", ""),
        "packageSetId": row.packages_id,
        "variables": [
            {"name": name, "isSecret": not value}
            for name, value in sorted(row.variables.items.items() if row.variables else ())
        ],
    }
