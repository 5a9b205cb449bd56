"""Renders docker-compose.yml: one service for each node, all on one host."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from fermi.export import scripts, shell
from fermi.jobs.spec import JobSpec, NodePlan, Plan, Problem

JOB_FOLDER = "/fermi/job"
DEFAULT_IMAGE = "${FERMI_IMAGE:?set FERMI_IMAGE to an image that has the training stack}"


def problems(job: JobSpec) -> list[Problem]:
    return []


def files(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> dict[str, str]:
    composed = {
        "name": "".join(char if char.isalnum() else "-" for char in job.name.lower()),
        "services": {get_service_name(at): _build_service(job, plan, at) for at in plan.nodes},
    }
    text = yaml.safe_dump(composed, sort_keys=False, allow_unicode=True, width=120)
    return {**shell.render_nodes(job, plan, get_service_name(plan.nodes[0]), connection), "docker-compose.yml": text}


def get_service_name(node: NodePlan) -> str:
    """Return the service's name, by which the others reach it, too."""
    return f"node-{node.node_rank}"


def _build_service(job: JobSpec, plan: Plan, node: NodePlan) -> dict[str, Any]:
    grace = int(plan.grace_seconds) + 10
    found: dict[str, Any] = {
        "image": _escape_dollars(node.node.image) or DEFAULT_IMAGE,
        "hostname": get_service_name(node),
        "entrypoint": ["bash", f"{JOB_FOLDER}/{scripts.get_script_name(node.node_rank)}"],
        "working_dir": JOB_FOLDER,
        "environment": {"FERMI_PYTHON": "${FERMI_PYTHON:-python3}", "FERMI_WORKDIR": JOB_FOLDER, "FERMI_LOGS":
        f"{JOB_FOLDER}/logs",
                        **{name: f"${{{name}:-}}" for name in job.secret_env}},
        "volumes": ["./:" + JOB_FOLDER, *(f"{_escape_dollars(folder)}:{_escape_dollars(folder)}" for folder in
        _list_folders(job))], "shm_size": f"{max(1, min(2 * len(node.processes), node.node.memory_gb // 2))}gb",
        "init": True,
        "restart": "no",
        "stop_grace_period": f"{grace}s",
    }  # fmt: skip
    if node.node.has_cuda:
        devices = {"driver": "nvidia", "device_ids": _list_devices(plan, node), "capabilities": ["gpu"]}
        found["deploy"] = {"resources": {"reservations": {"devices": [devices]}}}
    return found


def _list_devices(plan: Plan, node: NodePlan) -> list[str]:
    """Return GPU ids. All nodes are on one host here, so each gets GPUs of its own, in the order of ranks."""
    first = sum(
        len(other.processes) for other in plan.nodes if other.node_rank < node.node_rank and other.node.has_cuda
    )
    return [str(first + local) for local in range(len(node.processes))]


def _list_folders(job: JobSpec) -> list[str]:
    """Return the folders of data and checkpoints, mounted under the same path; a folder within another is covered by
    it."""
    places = [PurePosixPath(path).parent for path in (job.train_data, job.valid_data) if path]
    places += [PurePosixPath(path) for path in (job.checkpoint_dir, job.output_dir, job.files_dir) if path]
    wanted = sorted({str(place) for place in places if place.is_absolute() and str(place) != "/"})
    return [path for path in wanted if not any(path.startswith(f"{other}/") for other in wanted)]


def _escape_dollars(text: str) -> str:
    """Return the text with dollars escaped, which Compose would otherwise expand."""
    return text.replace("$", "$$")
