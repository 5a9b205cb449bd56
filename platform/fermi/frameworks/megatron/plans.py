"""What Megatron-LM and Megatron-LM + DeepSpeed propose and plan alike."""

from collections.abc import Mapping
from typing import Any

from fermi.frameworks._planning import build_plan
from fermi.frameworks.megatron import arguments, findings, search
from fermi.frameworks.megatron.request import MegatronRequest
from fermi.frameworks.megatron.split import Split
from fermi.jobs import network, rank_env
from fermi.jobs.ranks import Placement
from fermi.jobs.spec import JobSpec, Late, Plan, Proposal, Value

PRELOAD = ("torch", "numpy", "torch.distributed", "torch._dynamo")
"""Neither megatron.core nor deepspeed: importing them may touch CUDA, and a process that is to be forked must not
have."""


def build_proposal(spec: JobSpec, request: MegatronRequest) -> Proposal:
    """Return the fastest split that fits, as far as the user left it open."""
    found = search.find_best_split(request)
    if found is None:
        return Proposal()
    strategy = {name: value for name, value in found.split.strategy.items() if name not in spec.strategy}
    chosen = {name: value for name, value in found.split.options.items() if name not in spec.options}
    return Proposal(strategy, chosen, tuple(findings.explain_split(request, found)))


def build_megatron_plan(
    spec: JobSpec,
    request: MegatronRequest,
    split: Split,
    command: tuple[Value, ...],
    launched_with: Mapping[str, Any],
    *,
    files: Mapping[str, Value],
    env: Mapping[str, Value],
) -> Plan:
    """Return the plan. The arguments of the command are rendered for people and scripts to read; `files` and `env`:
    further ones."""
    readable: dict[str, Value] = {
        "megatron_config.yaml": arguments.render_config_file(request, split, launched_with),
        "megatron_args.txt": arguments.render_args_file(launched_with),
    }
    shared: dict[str, Value] = {
        **network.build_torch_env(spec, rank_env.choose_backend(spec)),
        "FERMI_MEGATRON_CONFIG": (Late.FILES_DIR, "/megatron_config.yaml"),
        "FERMI_MEGATRON_ARGS": (Late.FILES_DIR, "/megatron_args.txt"),
        **env,
    }

    def node_env(at: Placement) -> dict[str, Value]:
        one = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if findings.needs_one_connection(split, at.node.gpu_type) else {}
        return {**shared, **one}

    return build_plan(spec, command, files={**files, **readable}, preload=PRELOAD, node_env=node_env)
