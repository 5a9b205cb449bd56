"""What takes several cards of one machine: the traffic between them, the speed-up, and models that are split.

These wait for such a machine; rows of docs/requirements.md that only several GPUs show are named here.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from tests.gpu.check import check
from tests.gpu.checks import training
from tests.gpu.context import Context

DOCUMENT = {2: 1.8, 4: 3.5, 8: 6.8}
"""Speed-up by cards, as the requirement document 004 has it."""


def on_cards(context: Context, cards: int, framework: str, **more: Any) -> str:
    """Starts a task of a framework of ours with a rank on each of the first cards; returns its id."""
    env = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(cards)))} if context.machine.cuda else {}
    return context.start(ranks=cards, framework=framework, env={**env, "NCCL_DEBUG": "INFO"}, **more)


def counts(context: Context) -> list[int]:
    return [count for count in (1, 2, 4, 8) if count <= context.machine.cards]


@check("the speed-up over the cards of this machine", limit=240, needs=("cards",), alone=True,
       proves=("000-65", "000-66", "003-42", "004-150", "004-151", "004-237"))  # fmt: skip
def speed_up(context: Context) -> None:
    model = {**training.large(context), "totalSteps": 40, "logEvery": 5, "evalEvery": 0, "checkpointEvery": 0}
    speeds: dict[int, float] = {}
    for cards in counts(context):
        task_id = on_cards(context, cards, "ddp", hyperparameters=model)
        if training.succeeded(context, task_id, 60):
            told = training.losses(context, task_id, "tokens_per_s")
            speeds[cards] = median(list(told.values())[-3:])
            context.figure(f"{cards} cards", speeds[cards], "tokens/s")
    for cards, least in DOCUMENT.items():
        if cards in speeds and 1 in speeds:
            bar = least if context.machine.cuda else None
            context.figure(f"speed-up with {cards} cards", speeds[cards] / speeds[1], "times", least=bar)


@check("tensor and pipeline parallelism of Megatron over cards", limit=240, needs=("cards", "megatron"),
       proves=("004-104", "004-105", "004-107", "004-139", "004-140", "004-141", "004-142", "004-143", "004-144",
               "004-145", "004-147", "004-242"))  # fmt: skip
def megatron_over_cards(context: Context) -> None:
    """Every split reaches the losses of the one that replicates the model."""
    ways: dict[str, dict[str, int]] = {
        "data 2": {},
        "tensor 2": {"tensorParallel": 2},
        "pipeline 2": {"pipelineParallel": 2},
    }
    found: dict[str, dict[int, float]] = {}
    for label, strategy in ways.items():
        hyperparameters = {**training.shape(context), "checkpointEvery": 0, "layers": 4}
        config = {"strategy": strategy} if strategy else {}
        task_id = on_cards(
            context, 2, "megatron", hyperparameters=hyperparameters, options={"globalBatchSize": 8}, config=config
        )
        found[label] = training.learns(context, task_id, f"Megatron, {label}", 80)
        training.talked_by_nccl(context, task_id, f"Megatron, {label}")
    base = found.pop("data 2")
    for label, losses in found.items():
        if base and losses:
            off = max(abs(losses[step] - base[step]) / base[step] for step in base)
            context.figure(f"{label}: farthest loss from that of data 2", off, "of it", most=0.02)


@check("shards of FSDP and ZeRO take less of each card", limit=200, needs=("cards",), proves=("004-89", "004-146"))
def shards_over_cards(context: Context) -> None:
    """The state of a model is 16 bytes a weight on one card, and about a part of that on each of several."""
    cards = counts(context)[-1]
    model = {**training.large(context), "totalSteps": 200, "logEvery": 5, "evalEvery": 0, "checkpointEvery": 0}
    held: dict[str, float] = {}
    for framework, options in (("ddp", {}), ("fsdp", {}), ("deepspeed", {"zeroStage": 3, "offloadOptimizer": "none"})):
        task_id = on_cards(context, cards, framework, hyperparameters=model, options=options)
        training.succeeded(context, task_id, 60)
        told = context.platform.get(f"/training-tasks/{task_id}/telemetry", metric="rank_gpu_memory")["series"]
        peaks = [max(value for value in one["values"] if value is not None) for one in told if any(one["values"])]
        if context.expect(len(peaks) == cards, f"{framework}: the platform has the memory of {len(peaks)} ranks"):
            held[framework] = max(peaks) / 2**30
            context.figure(f"{framework}: memory of a rank", held[framework], "GiB")
    for framework in ("fsdp", "deepspeed"):
        if framework in held and "ddp" in held:
            context.expect(
                held[framework] < held["ddp"], f"{framework} takes {held[framework]:.2f} GiB, ddp {held['ddp']:.2f}"
            )
