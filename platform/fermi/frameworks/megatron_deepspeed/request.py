"""The options: Megatron-LM's without those that DeepSpeed takes over or cannot do."""

from dataclasses import replace

from fermi.frameworks.deepspeed import keys
from fermi.frameworks.megatron import request as megatron
from fermi.frameworks.megatron.request import MegatronRequest
from fermi.jobs import options
from fermi.jobs.spec import JobSpec, Problem

_KEPT_OPTIONS = (
    "globalBatchSize",
    "microBatchSize",
    "recompute",
    "precision",
    "maxPositionEmbeddings",
    "appendArguments",
)

OPTIONS = options.build_schema(
    zeroStage={"type": "integer", "minimum": 0, "maximum": 3},
    **{name: megatron.OPTIONS["properties"][name] for name in _KEPT_OPTIONS},
    config=keys.CONFIG_SCHEMA,
)

DEGREES = ("dataParallel", "tensorParallel", "pipelineParallel", "contextParallel")
"""No interleaved pipeline, which DeepSpeed's engine has none of, and no experts, which it builds otherwise."""


def read_request(spec: JobSpec) -> MegatronRequest | list[Problem]:
    """Return the request, or the problems that leave nothing to compute with."""
    found = megatron.read_request(spec, OPTIONS, DEGREES, leave_out=("config",))
    if isinstance(found, list):
        return found
    given = replace(
        found.given,
        deepspeed=True,
        zero=spec.options.get("zeroStage"),
        virtual=1,
        expert=1,
        sequence_parallel=False,  # see rules.py
        distributed_optimizer=False,
        trainer=False,
    )
    return replace(found, given=given)
