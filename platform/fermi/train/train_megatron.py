"""A small GPT made of megatron-core's layers, split by tensor and pipeline parallelism and trained by its schedules.

    torchrun --nproc_per_node=4 -m fermi.train.train_megatron --tensor-model-parallel-size 2 \\
        --pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 16 --train_data_path train.bin ...
    RANK=0 LOCAL_RANK=0 WORLD_SIZE=4 MASTER_ADDR=gn6 MASTER_PORT=29500 python -m fermi.train.train_megatron ...

Takes Megatron-LM's names for what they name, those of `train_ddp` for the rest; data order, output and exit codes are
`train_ddp`'s. Needs CUDA: megatron-core's schedules do. Weights depend on the seed and their names alone, so that every
split begins with the same model. A checkpoint is a folder that all nodes share; it loads where the split is the same:

    checkpoint_step_100/
        part_000_000_000.pt …   of tensor rank 0, pipeline rank 0, data-parallel rank 0: model and optimizer
        part_000_000_001.pt …   of the other data-parallel ranks: their share of a distributed optimizer
        manifest.json           step, options, and size and SHA-256 of each file
"""

import argparse
import contextlib
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.num_microbatches_calculator import get_num_microbatches, init_num_microbatches_calculator
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from torch import nn

from fermi.train import train_ddp, train_fsdp
from fermi.train.train_ddp import Batch, ConfigError, Report, Samples, World, hash_to_int

OPTION_NAMES = {
    "num_layers": "n_layer",
    "num_attention_heads": "n_head",
    "seq_length": "block_size",
    "micro_batch_size": "batch_size",
    "train_iters": "total_steps",
    "lr": "learning_rate",
    "lr_warmup_iters": "warmup_steps",
    "lr_decay_style": "lr_schedule",
    "clip_grad": "grad_clip",
    "log_interval": "log_every",
    "eval_interval": "eval_every",
    "eval_iters": "eval_batches",
    "save_interval": "checkpoint_every",
    "save": "checkpoint_dir",
    "load": "resume_from",
    "distributed_backend": "backend",
}
"""Megatron-LM's option names -> ours."""

SPLIT_OPTIONS = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "num_virtual_stages_per_pipeline_rank",
    "use_distributed_optimizer",
)


class SequenceParallelNorm:
    """torch's LayerNorm, marked where the sequence is split: megatron-core's own can be split with Apex or Transformer
    Engine only."""

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5) -> nn.LayerNorm:  # type: ignore[misc]
        norm = nn.LayerNorm(hidden_size, eps, device="cuda", dtype=config.params_dtype)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        return norm


def make_layer_specs(config: TransformerConfig, chunk: int | None) -> TransformerBlockSubmodules:
    layer = get_gpt_layer_local_spec()
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = SequenceParallelNorm
    return TransformerBlockSubmodules([layer] * get_num_layers_to_build(config, chunk), SequenceParallelNorm)


class MegatronTrainer(train_fsdp.FsdpTrainer):
    """`chunks`: this rank's pieces of the model, one per virtual pipeline stage."""

    optimizer: Any
    name = "train_megatron"

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        positive = train_ddp.at_least(1)
        for action in list(parser._actions):  # argparse knows no aliases after the fact
            for theirs in [theirs for theirs, ours in OPTION_NAMES.items() if ours == action.dest]:
                parser._option_string_actions[f"--{theirs}"] = action
        add, on_off = parser.add_argument, argparse.BooleanOptionalAction
        add("--tensor_model_parallel_size", type=positive, default=1)
        add("--pipeline_model_parallel_size", type=positive, default=1)
        add("--context_parallel_size", type=positive, choices=(1,), default=1)
        add("--num_virtual_stages_per_pipeline_rank", type=positive, default=1)
        add("--global_batch_size", type=positive, help="default: micro batch x accumulation x data-parallel ranks")
        add("--max_position_embeddings", type=positive, help="default: the sequence's length")
        add("--sequence_parallel", action=on_off, default=False)
        add("--use_distributed_optimizer", action=on_off, default=False)
        add("--untie_embeddings_and_output_weights", help="always so", action=on_off, default=False)
        add("--recompute_granularity", choices=("selective", "full"))
        add("--recompute_method", choices=("uniform", "block"))
        add("--recompute_num_layers", type=positive)
        add("--bf16", dest="dtype", action="store_const", const="bfloat16")
        add("--fp16", dest="dtype", action="store_const", const="float16")
        add("--adam_beta1", type=float, default=0.9)
        add("--adam_beta2", type=float, default=0.95)
        add(
            "--tokenizer_type",
            choices=("NullTokenizer",),
            default="NullTokenizer",
            help="the data are token ids already",
        )
        parser.set_defaults(distributed=True)

    @staticmethod
    def resolve_options(args: argparse.Namespace) -> None:
        if not torch.cuda.is_available():
            raise ConfigError("no CUDA here: megatron-core's schedules run on NVIDIA GPUs only")
        args.max_position_embeddings = args.max_position_embeddings or args.block_size
        if args.max_position_embeddings < args.block_size:
            raise ConfigError(f"--max-position-embeddings {args.max_position_embeddings} is less than --seq-length")

    def __init__(self, args: argparse.Namespace, world: World, report: Report) -> None:
        self.args, self.world, self.report = args, world, report
        tensor, stages, chunks = (getattr(args, name) for name in SPLIT_OPTIONS[:3])
        if world.size % (tensor * stages):
            raise ConfigError(f"{world.size} processes are not divisible by tensor {tensor} x pipeline {stages}")
        parallel_state.initialize_model_parallel(tensor, stages, chunks if chunks > 1 else None)
        ranks = args.data_parallel_size = parallel_state.get_data_parallel_world_size()
        self.data_rank = parallel_state.get_data_parallel_rank()
        self.batches(ranks)
        same_data = world._replace(rank=self.data_rank, size=ranks)
        self.train_data = Samples(args.train_data_path, args, same_data)
        self.valid_data = Samples(args.valid_data_path, args, same_data) if args.valid_data_path else None
        self.dtype = self.choose_dtype()
        tensor_parallel.model_parallel_cuda_manual_seed(args.seed)
        self.config = self.transformer()
        self.chunks = [self.chunk(number) for number in range(chunks)]
        self.model = nn.ModuleList(self.chunks)
        self.optimizer = get_megatron_optimizer(self.optimizing(), self.chunks)
        self.config.grad_scale_func = self.optimizer.scale_loss
        self.config.finalize_model_grads_func = finalize_model_grads
        self.schedule = get_forward_backward_func()
        self.speaks = parallel_state.is_pipeline_last_stage() and parallel_state.get_tensor_model_parallel_rank() == 0
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=False)  # the optimizer has its own
        self.step = 0
        about = {"device": str(world.device), "dtype": str(self.dtype).removeprefix("torch.")}
        split = {"tensor": tensor, "pipeline": stages, "virtual": chunks, "data": ranks}
        self.started(**about, parameters=self.parameters(), **split)

    def batches(self, ranks: int) -> None:
        """Set the micro-batches per step and data-parallel rank, as Megatron computes them. Raise ConfigError."""
        args = self.args
        if args.global_batch_size is None:
            args.global_batch_size = args.batch_size * args.gradient_accumulation_steps * ranks
        with contextlib.suppress(AssertionError):
            init_num_microbatches_calculator(self.world.rank, None, args.global_batch_size, args.batch_size, ranks)
            args.gradient_accumulation_steps = get_num_microbatches()
            return
        unit = f"{args.batch_size} samples x {ranks} data-parallel ranks"
        raise ConfigError(f"--global-batch-size {args.global_batch_size} is not a multiple of {unit}")

    def transformer(self) -> TransformerConfig:
        args = self.args
        tensor, stages, chunks = (getattr(args, name) for name in SPLIT_OPTIONS[:3])
        full = args.recompute_granularity == "full"
        try:
            return TransformerConfig(
                num_layers=args.n_layer, hidden_size=args.n_embd, num_attention_heads=args.n_head,
                tensor_model_parallel_size=tensor, pipeline_model_parallel_size=stages,
                virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
                sequence_parallel=args.sequence_parallel and tensor > 1,
                params_dtype=self.dtype, pipeline_dtype=self.dtype,
                bf16=self.dtype == torch.bfloat16, fp16=self.dtype == torch.float16,
                attention_dropout=args.dropout, hidden_dropout=args.dropout,
                recompute_granularity=args.recompute_granularity,
                recompute_method=args.recompute_method or ("uniform" if full else None),
                recompute_num_layers=args.recompute_num_layers or (1 if full else None),
                gradient_accumulation_fusion=False,
                overlap_p2p_comm=chunks > 1, batch_p2p_comm=chunks == 1, deallocate_pipeline_outputs=True,
            )  # fmt: skip
        except (ValueError, AssertionError) as why:
            raise ConfigError(str(why)) from None

    def chunk(self, number: int) -> DistributedDataParallel:
        args, config = self.args, self.config
        several = config.virtual_pipeline_model_parallel_size is not None
        stage = {"ignore_virtual": not several, "vp_stage": number if several else None}
        tensor = args.tensor_model_parallel_size
        try:
            model = GPTModel(
                config, make_layer_specs(config, stage["vp_stage"]), vocab_size=-(-args.vocab_size // tensor) * tensor,
                max_sequence_length=args.max_position_embeddings,
                pre_process=parallel_state.is_pipeline_first_stage(**stage),
                post_process=parallel_state.is_pipeline_last_stage(**stage),
                share_embeddings_and_output_weights=False, position_embedding_type="learned_absolute",
                vp_stage=stage["vp_stage"],
            )  # fmt: skip
        except (ValueError, AssertionError) as why:
            raise ConfigError(str(why)) from None
        for parameter in model.parameters():
            tensor_parallel.set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
        model.cuda(self.world.device)
        self.initialise(model)
        module = model if self.dtype == torch.float32 else Float16Module(config, model)
        reduced = DistributedDataParallelConfig(
            grad_reduce_in_fp32=self.dtype != torch.float16,
            use_distributed_optimizer=args.use_distributed_optimizer,
        )
        return DistributedDataParallel(config, reduced, module)

    @torch.no_grad()
    def initialise(self, model: GPTModel) -> None:
        """Initialise as `train_ddp` does: each matrix whole, from the seed and its name, and then this rank's part of
        it."""
        rank, size = parallel_state.get_tensor_model_parallel_rank(), self.args.tensor_model_parallel_size
        for name, parameter in model.named_parameters():
            if local := re.match(r"decoder\.layers\.(\d+)\.", name):
                number = model.decoder.layers[int(local[1])].layer_number
                name = f"layer {number} {name[local.end() :]}"
            if parameter.dim() < 2:
                parameter.fill_(float(name.endswith("norm.weight")))
                continue
            into_residual = name.endswith(("linear_proj.weight", "linear_fc2.weight"))
            deviation = 0.02 / math.sqrt(2 * self.args.n_layer) if into_residual else 0.02
            shape, split = list(parameter.shape), parameter.tensor_model_parallel
            if split:
                shape[parameter.partition_dim] *= size
            generator = torch.Generator().manual_seed(hash_to_int(self.args.seed, name))
            whole = torch.randn(shape, generator=generator) * deviation
            parameter.copy_(whole.chunk(size, parameter.partition_dim)[rank] if split else whole)

    def optimizing(self) -> OptimizerConfig:
        args = self.args
        return OptimizerConfig(
            optimizer="adam", lr=args.learning_rate, weight_decay=args.weight_decay, adam_beta1=args.adam_beta1,
            adam_beta2=args.adam_beta2, clip_grad=args.grad_clip, params_dtype=self.dtype,
            bf16=self.dtype == torch.bfloat16, fp16=self.dtype == torch.float16,
            use_distributed_optimizer=args.use_distributed_optimizer,
            initial_loss_scale=2**16,  # Megatron's own 2**32 skips the first dozen steps
        )  # fmt: skip

    def parameters(self) -> int:
        """Return the number of parameters of the whole model, every part counted once."""
        first = parallel_state.get_tensor_model_parallel_rank() == 0
        mine = sum(
            p.numel()
            for p in self.model.parameters()
            if self.data_rank == 0 and (first or getattr(p, "tensor_model_parallel", False))
        )
        count = torch.tensor(mine, device=self.world.device)
        dist.all_reduce(count)
        return int(count)

    def parallel(self) -> nn.Module:
        return self.model

    def advance(self, parallel: nn.Module) -> torch.Tensor:
        self.step += 1
        args = self.args
        stage = parallel_state.get_pipeline_model_parallel_rank()
        seed = (
            hash_to_int("rank", args.seed, self.step, self.data_rank, stage) >> 1
        )  # dropout; tensor ranks' are next to it
        tensor_parallel.model_parallel_cuda_manual_seed(seed)
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        micro_steps = range(args.gradient_accumulation_steps)
        loss = self.pass_through([self.train_data.draw(self.step, n) for n in micro_steps], forward_only=False)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
            group["weight_decay"] = args.weight_decay * group.get("wd_mult", 1.0)
        self.optimizer.step()
        return loss

    def pass_through(self, batches: list[Batch], *, forward_only: bool) -> torch.Tensor:
        """Return the batches' mean loss of this data-parallel rank, where it `speaks`; zero elsewhere."""
        feeds = [iter(batches) for _ in self.chunks]
        losses = self.schedule(
            forward_step_func=run_forward_step,
            data_iterator=feeds if len(feeds) > 1 else feeds[0],
            model=self.chunks,
            num_microbatches=len(batches),
            seq_length=self.args.block_size,
            micro_batch_size=self.args.batch_size,
            forward_only=forward_only,
        )
        zero = torch.zeros((), device=self.world.device)
        return torch.stack(losses).mean() if self.speaks and losses else zero

    def agree(self, loss: torch.Tensor, stop: bool) -> tuple[torch.Tensor, bool]:
        """Return the mean loss, which the last stage knows, and whether any rank wants to stop."""
        told = torch.stack((loss / self.train_data.world.size, torch.full_like(loss, stop)))
        dist.all_reduce(told)
        return told[0], told[1].item() > 0

    @torch.no_grad()
    def validate(self, data: Samples) -> float:
        self.model.eval()
        windows, size = list(data.windows()), self.args.gradient_accumulation_steps
        losses = [self.pass_through(windows[n : n + size], forward_only=True) for n in range(0, len(windows), size)]
        self.model.train()
        return self.agree(torch.stack(losses).mean(), False)[0].item()

    def write(self, folder: Path) -> str:
        """Write this rank's part: one data-parallel rank writes the model for all of them; each writes its part of the
        optimizer."""
        folder.mkdir(exist_ok=True)
        part: dict[str, Any] = {}
        if self.data_rank == 0:
            part["model"] = [chunk.state_dict() for chunk in self.chunks]
        if self.data_rank == 0 or self.args.use_distributed_optimizer:
            part["optimizer"] = [read_optimizer_state(one) for one in self.optimizer.chained_optimizers]
        if part:
            torch.save(part, folder / self.part(self.data_rank))
        return self.part(self.data_rank)

    def read(self, folder: str) -> None:
        device, own = self.world.device, self.data_rank if self.args.use_distributed_optimizer else 0
        common = torch.load(Path(folder, self.part(0)), map_location=device, weights_only=True)
        for chunk, state in zip(self.chunks, common["model"], strict=True):
            chunk.load_state_dict(state)
        part = torch.load(Path(folder, self.part(own)), map_location=device, weights_only=True) if own else common
        for one, held in zip(self.optimizer.chained_optimizers, part["optimizer"], strict=True):
            load_optimizer_state(one, held)

    @staticmethod
    def part(data_rank: int) -> str:
        tensor = parallel_state.get_tensor_model_parallel_rank()
        stage = parallel_state.get_pipeline_model_parallel_rank()
        return f"part_{tensor:03d}_{stage:03d}_{data_rank:03d}.pt"

    def refuse_another_model(self, path: str, was: dict[str, Any]) -> None:
        super().refuse_another_model(path, was)
        same = [*SPLIT_OPTIONS, *(["data_parallel_size"] if self.args.use_distributed_optimizer else [])]
        if other := [f"--{name} {was.get(name)}" for name in same if was.get(name) != getattr(self.args, name)]:
            raise ConfigError(f"cannot resume from {path}: it was saved with {' '.join(other)}")


def read_optimizer_state(optimizer: Any) -> dict[str, Any]:
    """Return the state that one of Megatron's optimizers has on this rank: torch's state, the parameters that it
    updates (masters of the model's, where those are in half precision), and the loss scale. Megatron's own way of
    saving the distributed optimizer cannot be read back with torch's Adam, which it falls back to without Apex or
    Transformer Engine."""
    inner, scaler = optimizer.optimizer, getattr(optimizer, "grad_scaler", None)
    masters = [parameter.detach() for group in inner.param_groups for parameter in group["params"]]
    return {"state": inner.state_dict(), "masters": masters, "scaler": scaler.state_dict() if scaler else {}}


@torch.no_grad()
def load_optimizer_state(optimizer: Any, held: dict[str, Any]) -> None:
    """Load the state that `read_optimizer_state` returned."""
    inner, scaler = optimizer.optimizer, getattr(optimizer, "grad_scaler", None)
    inner.load_state_dict(held["state"])
    masters = [parameter for group in inner.param_groups for parameter in group["params"]]
    for parameter, master in zip(masters, held["masters"], strict=True):
        parameter.copy_(master)
    if scaler:
        scaler.load_state_dict(held["scaler"])


def run_forward_step(feed: Iterator[Batch], model: nn.Module) -> tuple[torch.Tensor, Any]:
    """Return the losses of the next batch and the function that averages them: Megatron's forward step function."""
    tokens, targets = next(feed)
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    return model(tokens, positions, None, labels=targets), compute_mean_loss


def compute_mean_loss(losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = losses.float().mean()
    return loss, loss.detach().clone()


def main(argv: list[str]) -> int:
    return train_ddp.main(argv, MegatronTrainer)


if __name__ == "__main__":
    train_ddp.run_and_exit(main, sys.argv[1:])
