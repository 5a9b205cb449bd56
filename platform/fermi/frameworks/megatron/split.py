"""One complete way to split a model over the GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fermi.frameworks.megatron.request import MegatronRequest

Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True, slots=True)
class Split:
    """Ranks count tensor fastest, then context, data, pipeline (Megatron's order `tp-cp-ep-dp-pp`):

        rank        0 1   2 3   4 5   6 7        tensor 2, data 2, pipeline 2
        tensor      0 1   0 1   0 1   0 1
        data         0     1     0     1
        pipeline        0           1

    `virtual`: model chunks per pipeline rank. `micro`, `global_batch` in samples. `zero`: DeepSpeed's ZeRO
    stage, None where Megatron has the optimizer."""

    tensor: int
    pipeline: int
    context: int
    virtual: int
    expert: int
    data: int
    global_batch: int
    micro: int
    recompute: Recompute
    sequence_parallel: bool
    distributed_optimizer: bool
    zero: int | None = None

    @property
    def micro_batches(self) -> int:
        """Per optimizer step and data-parallel rank."""
        return self.global_batch // (self.micro * self.data)

    @property
    def strategy(self) -> Mapping[str, int]:
        """In the request's spelling; what is 1 and seldom used is left out."""
        often = {"tensorParallel": self.tensor, "pipelineParallel": self.pipeline, "dataParallel": self.data}
        seldom = {
            "contextParallel": self.context,
            "virtualPipeline": self.virtual,
            "expertParallel": self.expert,
        }
        return {**often, **{name: degree for name, degree in seldom.items() if degree > 1}}

    @property
    def options(self) -> Mapping[str, Any]:
        return {
            "globalBatchSize": self.global_batch,
            "microBatchSize": self.micro,
            "recompute": self.recompute,
            **(
                {"sequenceParallel": self.sequence_parallel, "distributedOptimizer": self.distributed_optimizer}
                if self.zero is None
                else {"zeroStage": self.zero}
            ),
        }


def build_given_split(request: MegatronRequest) -> Split:
    """Return what the user gave, with 1 for every degree left open, whether it can run or not."""
    given, world = request.given, request.cluster.world
    tensor, pipeline, context = given.tensor or 1, given.pipeline or 1, given.context or 1
    data = given.data or max(1, world // (tensor * pipeline * context))
    return Split(
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        virtual=given.virtual or 1,
        expert=given.expert or 1,
        data=data,
        global_batch=given.global_batch,
        micro=given.micro or 1,
        recompute=given.recompute or "none",  # type: ignore[arg-type]
        sequence_parallel=uses_sequence_parallel(request, tensor, context),
        distributed_optimizer=given.distributed_optimizer,
        zero=(given.zero if given.zero is not None else 1) if given.deepspeed else None,
    )


def uses_sequence_parallel(request: MegatronRequest, tensor: int, context: int) -> bool:
    """Return whether sequence parallelism is on: as requested, else wherever it is possible, as it costs nothing and
    saves memory (Korthikanti et al. 2022, §4.2.2)."""
    if (wished := request.given.sequence_parallel) is not None:
        return wished
    return tensor > 1 and request.model.sequence % (tensor * context) == 0
