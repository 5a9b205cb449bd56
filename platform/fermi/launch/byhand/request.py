"""A job from a request file alone, without a platform: the API's request, with what the platform would have looked up.

taskName: my-training
nodes:                                    what the platform knows of environments
  - {name: gpu-a, ip: 10.0.0.1, gpuType: A100, gpuCount: 2}
  - {name: gpu-b, ip: 10.0.0.2, gpuType: A100, gpuCount: 4}
distributedConfig: {framework: ddp, masterNode: gpu-a, masterPort: 29500}
trainData: /data/train.bin                what it knows of datasets and of its own folders
validData: /data/val.bin
checkpointDir: /data/checkpoints
entrypoint: {script: train.py, args: []}  or `hyperparameters` of the reference recipe
connection: {namespace: training}         of the cluster, for the targets kubernetes and slurm
"""

import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from fermi.launch import registry, validate
from fermi.launch.spec import MASTER_PORT, Entrypoint, JobSpec, Node, Problem

_TEXT: dict[str, Any] = {"type": "string"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}


_NODE = {
    **_object(
        id=_TEXT, name={"type": "string", "minLength": 1}, host=_TEXT, ip=_TEXT, zone=_TEXT, gpuType=_TEXT,
        gpuCount=_COUNT, emulated={"type": "boolean"}, cpuCores={"type": "integer", "minimum": 1},
        memoryGb={"type": "integer", "minimum": 1}, image=_TEXT, versions={"type": "object"},
        network={"type": "object"}, engine={"type": "object"},
    ),
    "type": "object",
    "required": ["name"],
}  # fmt: skip

SECRET = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"

SCHEMA = {
    **_object(
        taskName=_TEXT, nodes={"type": "array", "minItems": 1, "items": _NODE}, trainData=_TEXT, validData=_TEXT,
        checkpointDir=_TEXT, recipe=_TEXT, resumeFrom={"type": ["string", "null"]}, hyperparameters={"type": "object"},
        env={"type": "object", "additionalProperties": {"type": "string"}},
        secretEnv={"type": "object", "additionalProperties": {"type": "string", "pattern": SECRET}},
        graceSeconds={"type": "number"},
        connection={"type": "object"},
        entrypoint=_object(script=_TEXT, args={"type": "array", "items": _TEXT}),
        distributedConfig=_object(
            enabled={"type": "boolean"}, nodeIds={"type": "array", "items": _TEXT},
            masterNode={"type": ["string", "null"]}, framework=_TEXT, masterPort={"type": "integer"}, backend=_TEXT,
            strategy={"type": "object"}, options={"type": "object"},
        ),
        # The platform's own, of no meaning without it.
        datasetId={}, datasetVersionId={}, modelId={}, launchMode={}, environmentIds={}, spareEnvironmentIds={},
        maxRestarts={}, priority={}, preflight={},
    ),
    "type": "object",
    "required": ["nodes"],
}  # fmt: skip


def problems(request: Mapping[str, Any]) -> list[Problem]:
    """All that is wrong with its form; empty = `job` will succeed."""
    return [_problem(error) for error in Draft202012Validator(SCHEMA).iter_errors(request)]


def _problem(error: ValidationError) -> Problem:
    if error.validator == "required" and not error.absolute_path:
        return Problem("nodes", "NODES_REQUIRED")
    return Problem(".".join(map(str, error.absolute_path)), "REQUEST_INVALID", {"why": error.message})


def job(request: Mapping[str, Any]) -> tuple[JobSpec, list[Problem]]:
    """With what the launching rules find. Raises UnknownName for a framework that there is none of."""
    config = request.get("distributedConfig") or {}
    given = [_node(node) for node in request["nodes"]]
    found: list[Problem] = []
    chosen = config.get("nodeIds") or [node.id for node in given]
    nodes = tuple(node for node in given if node.id in chosen or node.name in chosen)
    allowed = ", ".join(node.name for node in given)
    known = {name for node in given for name in (node.id, node.name)}
    for index, name in enumerate(chosen):
        if name not in known:
            found.append(Problem(f"distributedConfig.nodeIds.{index}", "NODE_UNKNOWN", _params(name, allowed)))
    ids = [node.id for node in given]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        found.append(Problem("nodes", "NODE_TWICE", {"found": ", ".join(twice)}))
    wanted = config.get("masterNode") or (nodes[0].id if nodes else "")
    master = next((node.id for node in nodes if wanted in (node.id, node.name)), "")
    if not master:
        found.append(Problem("distributedConfig.masterNode", "NODE_UNKNOWN", _params(wanted, allowed)))
    if found:
        return JobSpec("", "", (), ""), found
    entry = request.get("entrypoint")
    spec = JobSpec(
        task_id=_slug(request.get("taskName") or "task"),
        framework=registry.framework_name(config.get("framework", registry.DEFAULT)),
        nodes=nodes,
        master=master,
        recipe=request.get("recipe", "gpt"),
        entrypoint=Entrypoint(entry["script"], tuple(entry.get("args", ()))) if entry else None,
        hyperparameters=request.get("hyperparameters") or {},
        strategy=config.get("strategy") or {},
        options=config.get("options") or {},
        env=request.get("env") or {},
        secret_env=request.get("secretEnv") or {},
        backend=config.get("backend", "auto"),
        master_port=config.get("masterPort", MASTER_PORT),
        train_data=request.get("trainData", ""),
        valid_data=request.get("validData", ""),
        checkpoint_dir=request.get("checkpointDir") or "checkpoints",
        resume_from=request.get("resumeFrom") or "",
        attempt=1,
        grace_seconds=request.get("graceSeconds", 30.0),
    )
    registry.framework(spec.framework)
    if spec.entrypoint is None and not spec.train_data:
        found.append(Problem("trainData", "TRAIN_DATA_REQUIRED"))
    return spec, found + validate.problems(spec)


_SPELLED = {"gpuType": "gpu_type", "gpuCount": "gpu_count", "cpuCores": "cpu_cores", "memoryGb": "memory_gb"}


def _node(given: Mapping[str, Any]) -> Node:
    return Node(**{"id": given["name"], **{_SPELLED.get(name, name): value for name, value in given.items()}})


def _params(found: str, allowed: str) -> dict[str, str]:
    return {"found": found, "allowed": allowed}


def _slug(name: str) -> str:
    """What may name files and an engine's objects."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "task"
