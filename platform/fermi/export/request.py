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
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from fermi.jobs import json_shape
from fermi.jobs.errors import UnknownNameError
from fermi.jobs.spec import JobSpec, Node, Problem
from fermi.planning import plugins, request, validate
from fermi.planning.request import TaskRequest, describe_field
from fermi.runner.ports import DEFAULT_MASTER_PORT

Text = Annotated[str, Meta(max_length=4096)]
AtLeastOne = Annotated[int, Meta(ge=1)]


class NodeRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """An environment as the platform knows it. `id` is the name where it is left out."""

    name: Annotated[str, Meta(extra_json_schema={"minLength": 1})]
    id: Text = ""
    host: Text = ""
    ip: Text = ""
    zone: Text = ""
    gpu_type: Text = ""
    gpu_count: Annotated[int, Meta(ge=0)] = 0
    emulated: bool = False
    cpu_cores: AtLeastOne = 1
    memory_gb: AtLeastOne = 1
    image: Text = ""
    versions: dict[str, Any] = {}
    network: dict[str, Any] = {}
    engine: dict[str, Any] = {}

    def node(self) -> Node:
        said = {name: getattr(self, name) for name in self.__struct_fields__}
        return Node(**{**said, "id": self.id or self.name})


class ExportRequest(TaskRequest, frozen=True, kw_only=True, rename="camel"):
    """A task request with what the platform would look up. Fields that have no meaning without the platform are
    accepted and ignored."""

    nodes: Annotated[
        tuple[NodeRequest, ...],
        Meta(extra_json_schema={"minItems": 1, "x-codes": dict.fromkeys(("minItems", "required"), "NODES_REQUIRED")}),
    ]
    train_data: Annotated[Text, describe_field(flag="--train-data")] = ""
    valid_data: Annotated[Text, describe_field(flag="--valid-data")] = ""
    checkpoint_dir: Annotated[Text, describe_field(flag="--checkpoint-dir")] = ""
    recipe: Text = "gpt"
    connection: dict[str, Any] = {}


def build_job(data: Mapping[str, Any]) -> tuple[JobSpec | None, list[Problem]]:
    """Return the job, and everything that is wrong; None where too little is known for a job."""
    asked, found = json_shape.read_object(ExportRequest, data)
    config = structs.replace(asked.distributed_config or request.DistributedConfigRequest(), enabled=True)
    asked = structs.replace(asked, distributed_config=config)  # by hand, what is written counts
    there = [node.node() for node in asked.nodes]
    chosen = config.node_ids or tuple(node.id for node in there)
    nodes = tuple(node for node in there if node.id in chosen or node.name in chosen)
    allowed = ", ".join(node.name for node in there)
    known = {name for node in there for name in (node.id, node.name)}
    for index, name in enumerate(chosen):
        if name not in known:
            found.append(Problem(f"distributedConfig.nodeIds.{index}", "NODE_UNKNOWN", _build_params(name, allowed)))
    ids = [node.id for node in there]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        found.append(Problem("nodes", "NODE_TWICE", {"found": ", ".join(twice)}))
    wanted = config.master_node or (nodes[0].id if nodes else "")
    master = next((node.id for node in nodes if wanted in (node.id, node.name)), "")
    if not master and there:
        found.append(Problem("distributedConfig.masterNode", "NODE_UNKNOWN", _build_params(wanted, allowed)))
    if not asked.entrypoint and not asked.train_data:
        found.append(Problem("trainData", "TRAIN_DATA_REQUIRED"))
    framework = plugins.resolve_framework_name(config.framework)
    try:
        plugins.get_framework(framework)
    except UnknownNameError as unknown:
        found.append(Problem("distributedConfig.framework", unknown.code, unknown.params))
        return None, found
    if not master:
        return None, found
    placed, wrong = request.limit_world_size(nodes, master, config.world_size)
    spec = request.build_job(
        asked,
        task_id=_make_slug(asked.task_name or "task"),
        framework=framework,
        nodes=placed,
        master=master,
        master_port=DEFAULT_MASTER_PORT,
        checkpoint_dir=asked.checkpoint_dir or "checkpoints",
        resume_from=asked.resume_from or "",
        recipe=asked.recipe,
        train_data=asked.train_data,
        valid_data=asked.valid_data,
    )
    spec = spec.for_attempt(1, master_port=spec.master_port, resume_from=spec.resume_from)
    return spec, [*found, *wrong, *validate.find_problems(spec)]


def _build_params(found: str, allowed: str) -> dict[str, str]:
    return {"found": found, "allowed": allowed}


def _make_slug(name: str) -> str:
    """Return the name reduced to what may name files and an engine's objects."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "task"
