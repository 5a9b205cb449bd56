"""PyTorch DistributedDataParallel: every rank holds the whole model; gradients are all-reduced each step."""

from typing import Any

import yaml

from fermi.frameworks._planning import build_plan
from fermi.frameworks.base import Info
from fermi.jobs import batch_shares, network, options, rank_env, recipes
from fermi.jobs.ranks import Placement, place_nodes
from fermi.jobs.spec import JobSpec, Late, Plan, Problem, Value

INFO = Info(
    elastic="uneven",
    label="PyTorch DDP",
    model_size=(0, 1_000_000_000),
)

OPTIONS = options.build_schema(
    staticGraph={"type": "boolean", "default": False},
    findUnusedParameters={"type": "boolean", "default": False},
    gradientAsBucketView={"type": "boolean", "default": False},
    bucketCapMb={"type": "integer", "minimum": 1, "maximum": 1024, "default": 25},
    timeoutSeconds=network.TIMEOUT_SCHEMA,
    batchShare=batch_shares.OPTION_SCHEMA,
)

_TRAINER = "fermi.train.train_ddp"
PRELOAD = ("torch", "numpy", "torch.distributed", "torch.nn.parallel", "torch.utils.data", "torch._dynamo")
"""What optimizers and DistributedDataParallel import, and our trainer does without (see `fermi.probe.lazy_dynamo`); and
our trainer, which each rank would have to execute otherwise."""

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's is eight times as fast

_FLAGS = {
    "staticGraph": "static_graph",
    "findUnusedParameters": "find_unused_parameters",
    "gradientAsBucketView": "gradient_as_bucket_view",
    "bucketCapMb": "bucket_cap_mb",
}


def problems(spec: JobSpec) -> list[Problem]:
    return options.find_problems(spec, OPTIONS) or batch_shares.find_problems(spec)


def warnings(spec: JobSpec) -> list[Problem]:
    return batch_shares.find_warnings(spec)


def plan(spec: JobSpec) -> Plan:
    backend = rank_env.choose_backend(spec)
    extra: dict[str, Any] = {"backend": backend}
    if spec.world_size > 1:
        extra["distributed"] = True
    extra |= {flag: spec.options[name] for name, flag in _FLAGS.items() if name in spec.options}
    command = recipes.build_command(spec, _TRAINER, extra)
    files = {"pytorch_ddp_config.yaml": _render_config(spec, place_nodes(spec.nodes, spec.master))}
    env: dict[str, Value] = {"FERMI_DDP_CONFIG": (Late.FILES_DIR, "/pytorch_ddp_config.yaml")}
    env |= network.build_torch_env(spec, backend)
    by_rank = batch_shares.build_rank_env(spec)
    return build_plan(
        spec,
        command,
        files=files,
        preload=PRELOAD,
        node_env=lambda _: env,
        rank_env=lambda at, local: by_rank.get(at.first_rank + local, {}),
    )


_HEAD_PLACEHOLDER = "<head>"


def _render_config(spec: JobSpec, placements: list[Placement]) -> Value:
    """Return the configuration in the requirement document's shape, with `world_size` counting processes (the
    document's 3 counts nodes), and the options that a user's own script may pass to DistributedDataParallel."""
    text = yaml.dump(
        {
            "distributed": {
                "backend": rank_env.choose_backend(spec),
                "init_method": f"tcp://{_HEAD_PLACEHOLDER}:{spec.master_port}",
                "world_size": spec.world_size,
                "nnodes": len(placements),
            },
            "ddp": {flag: options.read_option(spec, OPTIONS, name) for name, flag in _FLAGS.items()},
            "nodes": [
                {
                    "name": at.node.name,
                    "rank": at.node_rank,
                    "ranks": f"{at.ranks[0]}-{at.ranks[-1]}",
                    "ip": at.node.ip or at.node.host,
                    "gpus": list(range(at.node.gpu_count)),
                }
                for at in placements
            ],
        },
        Dumper=_DUMPER,
        sort_keys=False,
        allow_unicode=True,
    )
    before, _, after = text.partition(_HEAD_PLACEHOLDER)
    return (before, Late.HEAD_HOST, after)
