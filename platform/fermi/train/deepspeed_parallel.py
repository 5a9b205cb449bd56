"""The GPT of train_ddp.py over several ranks, by DeepSpeed's own means: its layers cut by tensor parallelism (AutoTP),
and strung up as a pipeline (`PipelineModule`).

    rank        0 1   2 3   4 5   6 7        tensor 2, data 2, pipeline 2
    tensor      0 1   0 1   0 1   0 1
    data         0     1     0     1
    pipeline        0           1

Tensor parallelism alone is DeepSpeed's engine with `tensor_parallel` in its configuration. Its engine for pipelines
cannot have that: the configuration's ranks are those of tensor and data alone (runtime/engine.py,
`_configure_tensor_parallel_states`). There the same layers are put in place over the groups of the pipeline's grid.
"""

import argparse
import contextlib
import sys
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from deepspeed.module_inject.auto_tp import AutoTP
from deepspeed.module_inject.autotp_config import AutoTPConfig
from deepspeed.module_inject.layers import set_autotp_mode
from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
from torch import nn

from fermi.train.train_ddp import GPT, Block, ConfigError, World

LAYER_SPECS = {
    "use_default_specs": False,
    "layer_specs": [
        {"patterns": [r".*qkv\.weight$"], "partition_type": "column", "shape": [3, -1]},  # whole heads of each of three
        {"patterns": [r".*expand\.weight$"], "partition_type": "column"},
        {"patterns": [r".*mix\.weight$", r".*contract\.weight$"], "partition_type": "row"},
    ],
}
"""Which layers are split, and how, in DeepSpeed's configuration format; embeddings, norms and the head are whole on
every rank."""


class ParallelSplit(NamedTuple):
    """Degrees of parallelism, and this rank's place among them."""

    tensor: int
    pipeline: int
    data: int
    rank: int

    @classmethod
    def from_args(cls, args: argparse.Namespace, world: World) -> "ParallelSplit":
        """Return the split of these options. Raise ConfigError where processes, heads or layers are not divisible."""
        tensor, pipeline = args.tensor_parallel_size, args.pipeline_parallel_size
        data, left = divmod(world.size, tensor * pipeline)
        if left:
            raise ConfigError(f"{world.size} processes are not divisible by tensor {tensor} x pipeline {pipeline}")
        if args.n_head % tensor:
            raise ConfigError(f"--n_head {args.n_head} is not divisible by --tensor_parallel_size {tensor}")
        if pipeline > args.n_layer:
            raise ConfigError(f"--pipeline_parallel_size {pipeline} is more than --n_layer {args.n_layer}")
        return cls(tensor, pipeline, data, world.rank)

    @property
    def tensor_rank(self) -> int:
        return self.rank % self.tensor

    @property
    def data_rank(self) -> int:
        return self.rank // self.tensor % self.data

    @property
    def stage(self) -> int:
        return self.rank // (self.tensor * self.data)

    @property
    def model_rank(self) -> int:
        """Rank among those that hold one copy of the model together."""
        return self.stage * self.tensor + self.tensor_rank

    @property
    def degrees(self) -> dict[str, int]:
        """Degrees above 1 that split the model, by name."""
        return {name: n for name, n in (("tensor", self.tensor), ("pipeline", self.pipeline)) if n > 1}

    def get_data_parallel_world_size(self) -> int:
        """Return the data-parallel size, from which DeepSpeed computes batch sizes."""
        return self.data


def add_autotp_config(config: dict[str, Any], split: ParallelSplit) -> dict[str, Any]:
    """Return DeepSpeed's configuration with the specification of how the model is split."""
    if split.tensor == 1 or split.pipeline > 1:
        return {name: value for name, value in config.items() if name != "tensor_parallel"}
    return {**config, "tensor_parallel": {"partition_config": LAYER_SPECS, "autotp_size": split.tensor}}


def divide_heads(model: nn.Module, split: ParallelSplit) -> None:
    """Set each block's number of heads to this rank's part, once the layers are split."""
    for module in model.modules():
        if isinstance(module, Block):
            module.n_head //= split.tensor


class EmbeddingStage(nn.Module):
    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.token, self.position = model.token, model.position

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.token(tokens) + self.position.weight[: tokens.shape[1]]


class HeadStage(nn.Module):
    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.norm, self.head = model.norm, model.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(x)).float()


def compute_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build_pipeline_stage(model: GPT, split: ParallelSplit) -> PipelineModule:
    """Return this rank's pipeline stage of the model, with its part of each layer."""
    topology = PipeModelDataParallelTopology(split.pipeline, split.tensor, split.data)
    layers = [EmbeddingStage(model), *model.blocks, HeadStage(model)]
    with contextlib.redirect_stdout(sys.stderr):  # where it lists what each stage has
        stage = PipelineModule(layers, topology=topology, loss_fn=compute_cross_entropy, partition_method="type:Block")
    if split.tensor > 1:
        shard_layers(stage, split)
    for weight in stage.parameters():  # else clipping counts the first stage alone (runtime/utils.py, clip_grad_norm_)
        weight.model_parallel = split.tensor_rank == 0 or getattr(weight, "tensor_model_parallel", False)
    return stage


def shard_layers(stage: PipelineModule, split: ParallelSplit) -> None:
    """Split the layers of a stage by tensor parallelism, in place."""
    set_autotp_mode(training=True)
    rules = AutoTPConfig.from_dict({**LAYER_SPECS, "tp_size": split.tensor})
    parts = AutoTP(
        module=stage, all_reduce_linears=(), prefix="", state_dict=None, linear_layer_setting=(nn.Linear, nn.Embedding),
        orig_layer_impl=None, partition_config=rules, training_mode=True,
    )  # fmt: skip
    parts.mp_size, parts.mp_group = split.tensor, stage.mpu().get_slice_parallel_group()
    parts.update_linear_policies()
    parts._replace_module(stage)
    divide_heads(stage, split)
