"""A small GPT trained with JAX, data parallel over processes of one device each: the reference trainer for JAX.

It starts in whichever way is at hand:

    python -m fermi.train.train_jax --train_data_path train.bin --valid_data_path val.bin              one process
    python -m fermi.train.train_jax --coordinator_address gn6:29500 --num_processes 4 --process_id 0   once per process
    RANK=0 LOCAL_RANK=0 WORLD_SIZE=4 MASTER_ADDR=gn6 MASTER_PORT=29500 python -m fermi.train.train_jax once per process
    srun python -m fermi.train.train_jax                                                               Slurm's variables

Data, options, initial weights, learning rate and output lines are `train_ddp`'s: the same seed and global batch give
the same curve within rounding. Process 0 prints one JSON object a line: metrics have `step`, the rest `event`.
Exit code 0 when all steps are done, 2 for what cannot work, 143 when SIGTERM stopped it after a checkpoint.
"""

import argparse
import json
import os
import re
import signal
import sys
import time
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec

from fermi.train import common, gpt_jax
from fermi.train.common import Refused, Report, Samples, Unusable, say

MODEL_OPTIONS = ("vocab_size", "block_size", "n_layer", "n_head", "n_embd")
ENDING = ".npz"
TERMINATED = 128 + signal.SIGTERM
RANKS = "ranks"  # the mesh's one axis
SLURM = {"SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"}  # set by srun
EVERYWHERE, BY_RANK, ROWS_BY_RANK = PartitionSpec(), PartitionSpec(RANKS), PartitionSpec(None, RANKS)


# --- Options ------------------------------------------------------------------------------------------------


def parse(argv: list[str]) -> argparse.Namespace:
    parser = common.options("train_jax", __doc__, dtypes=("float32", "bfloat16"))
    add, positive, natural = parser.add_argument, common.at_least(1), common.at_least(0)
    share = argparse.BooleanOptionalAction
    add("--batch_is_global", action=share, default=False, help="--batch_size is shared out among the processes")
    add("--coordinator_address", help="host:port of process 0")
    add("--num_processes", type=positive)
    add("--process_id", type=natural)
    add("--local_rank", type=natural, help="which of this machine's devices; default LOCAL_RANK, else the first")
    add("--initialization_timeout_seconds", type=positive, default=300, help="to wait for all processes to meet")
    add("--heartbeat_timeout_seconds", type=positive, default=100, help="after which a silent process counts as dead")
    return common.parse(parser, argv)


# --- Processes ----------------------------------------------------------------------------------------------


class World(NamedTuple):
    """This process among the others, as flags or the launcher's variables tell. `coordinator` None: there is only this
    process, or JAX reads the address from Slurm's node list."""

    rank: int
    local_rank: int
    size: int
    coordinator: str | None
    launcher: str

    @classmethod
    def find(cls, args: argparse.Namespace) -> "World":
        env = os.environ
        local = args.local_rank if args.local_rank is not None else int(env.get("LOCAL_RANK", 0))
        address = args.coordinator_address or env.get("JAX_COORDINATOR_ADDRESS")
        if not address and "MASTER_ADDR" in env and "MASTER_PORT" in env:
            address = f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
        size, rank, launcher = args.num_processes, args.process_id, "flags"
        if args.coordinator_address is None and size is None and rank is None:
            if "RANK" in env:
                size, rank, launcher = env.get("WORLD_SIZE"), env["RANK"], "variables"
            elif env.keys() >= SLURM:
                return cls(
                    int(env["SLURM_PROCID"]), int(env["SLURM_LOCALID"]), int(env["SLURM_NTASKS"]), address, "slurm"
                )
            else:
                return cls(0, local, 1, None, "none")
        needed = {"the coordinator's address": address, "the number of processes": size, "the process id": rank}
        if missing := [name for name, value in needed.items() if value is None]:
            raise Refused(f"{' and '.join(missing)} must be given by {launcher}, too")
        size, rank = int(size), int(rank)
        if not 0 <= rank < size:
            raise Refused(f"the process id is {rank}, but must be below the number of processes, {size}")
        if not re.fullmatch(r".+:\d+", address or ""):
            raise Refused(f"the coordinator's address is {address}, but must be host:port")
        return cls(rank, local, size, address, launcher)

    def join(self, args: argparse.Namespace) -> jax.sharding.Mesh:
        """Meet the other processes; all devices, one of each process, in the order of ranks."""
        jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for itself
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        own = 0 if visible and "," not in visible else self.local_rank  # some launchers show each process its GPU only
        if self.size > 1:
            jax.distributed.initialize(
                self.coordinator,
                self.size,
                self.rank,
                local_device_ids=int(os.environ.get("JAX_LOCAL_DEVICE_IDS", own)),
                cluster_detection_method="slurm" if self.launcher == "slurm" else "deactivate",
                initialization_timeout=args.initialization_timeout_seconds,
                heartbeat_timeout_seconds=args.heartbeat_timeout_seconds,
            )
        devices = sorted(jax.devices(), key=lambda device: device.process_index) if self.size > 1 else one_device(own)
        if [device.process_index for device in devices] != list(range(self.size)):
            raise Refused(f"{len(devices)} devices for {self.size} processes: each must have exactly one")
        where = f"local rank {self.local_rank}, coordinator {self.coordinator or self.launcher}"
        say(f"[rank {self.rank}] world size {self.size}, {where}, device {jax.local_devices()[0]}")
        return jax.sharding.Mesh(np.array(devices), (RANKS,))


def one_device(index: int) -> list[Any]:
    devices = jax.local_devices()
    return [devices[index % len(devices)]]


# --- Checkpoints --------------------------------------------------------------------------------------------


class State(NamedTuple):
    """All that a run needs to go on, but for its options."""

    weights: gpt_jax.Weights
    means: gpt_jax.Weights
    squares: gpt_jax.Weights


def save_checkpoint(folder: Path, step: int, options: dict[str, Any], state: State, keep: int) -> Path:
    arrays = {f"{kind}/{name}": array for kind, tree in state._asdict().items() for name, array in tree.items()}
    arrays["about"] = np.array(json.dumps({"step": step, "options": options}))
    return common.save_checkpoint(folder, step, ENDING, keep, lambda file: np.savez(file, **arrays))


def load_checkpoint(path: Path) -> tuple[int, dict[str, Any], State]:
    """(step, options, state). Raises Unusable."""
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise Unusable(f"{damaged} is damaged")
        with np.load(path, allow_pickle=False) as arrays:
            about = json.loads(arrays["about"].item())
            state = State({}, {}, {})
            for kind, name in (key.split("/") for key in arrays if key != "about"):
                getattr(state, kind)[name] = arrays[f"{kind}/{name}"]
        if not state.weights.keys() == state.means.keys() == state.squares.keys():
            raise Unusable("not a checkpoint of this trainer")
        return about["step"], about["options"], state
    except Exception as error:  # a damaged file can fail in any way
        raise Unusable(str(error).split("\n")[0]) from error


# --- Training -----------------------------------------------------------------------------------------------


class Trainer:
    """Model, optimizer and data of one process. `step` counts the optimizer steps done, over all attempts."""

    def __init__(self, args: argparse.Namespace, world: World, mesh: jax.sharding.Mesh, report: Report) -> None:
        self.args, self.world, self.mesh, self.report = args, world, mesh, report
        valid, place = args.valid_data_path, (world.rank, world.size)
        self.train_data = Samples(args.train_data_path, args, *place)
        self.valid_data = Samples(valid, args, *place) if valid else None
        modern = all(float(getattr(device, "compute_capability", 0)) >= 8 for device in mesh.devices.flat)
        self.dtype = {"auto": "bfloat16" if modern else "float32"}.get(args.dtype, args.dtype)
        weights = gpt_jax.initial_weights(args)
        zeros = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self.state, self.step, self.rate = self.on_devices(State(weights, zeros, zeros)), 0, 0.0
        step = self.by_rank(self.local_step, EVERYWHERE, ROWS_BY_RANK, BY_RANK, EVERYWHERE)
        self.train_step = jax.jit(step, donate_argnums=0)
        self.mean_loss = jax.jit(self.by_rank(self.local_loss, EVERYWHERE, ROWS_BY_RANK))
        about = {"device": jax.local_devices()[0].platform, "dtype": self.dtype, **common.sizes(args, world.size)}
        report.event("started", world_size=world.size, **about, parameters=sum(w.size for w in weights.values()))

    def by_rank(self, function: Callable[..., Any], *arguments: PartitionSpec) -> Callable[..., Any]:
        """`function` run by each rank on its part of the arguments; its results are the same on all. Unchecked, so that
        gradients stay each rank's own until `pmean`."""
        return jax.shard_map(function, mesh=self.mesh, in_specs=arguments, out_specs=EVERYWHERE, check_vma=False)

    def on_devices(self, tree: Any, spec: PartitionSpec = EVERYWHERE) -> Any:
        """This process's part of arrays that all processes have together."""
        place = NamedSharding(self.mesh, spec)
        return jax.tree.map(lambda array: jax.make_array_from_process_local_data(place, array), tree)

    def local_step(self, state: State, rows: jax.Array, stop: jax.Array, scales: jax.Array) -> Any:
        """One rank's part of an optimizer step: `rows` are its micro batches, `scales` the learning rate and the
        bias corrections. One all-reduce: gradients, loss and the wish to stop travel together."""

        def micro_step(sums: Any, batch: jax.Array) -> tuple[Any, None]:
            part = jax.value_and_grad(gpt_jax.loss)(state.weights, batch, self.args, self.dtype)
            return jax.tree.map(jnp.add, sums, part), None

        nothing = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, state.weights))
        sums, _ = jax.lax.scan(micro_step, nothing, rows)
        mean = jax.tree.map(lambda value: value / len(rows), sums)
        flat, shaped = ravel_pytree((mean, stop))
        (loss, gradients), stop = shaped(jax.lax.pmean(flat, RANKS))
        gradients = gpt_jax.clip(gradients, self.args.grad_clip)
        new = gpt_jax.adamw(*state, gradients, scales[0], scales[1:], self.args.weight_decay)
        return State(*new), loss, stop[0] > 0

    def local_loss(self, weights: gpt_jax.Weights, rows: jax.Array) -> jax.Array:
        losses = jax.lax.map(lambda batch: gpt_jax.loss(weights, batch, self.args, self.dtype), rows)
        return jax.lax.pmean(losses.mean(), RANKS)

    def advance(self, stop: bool) -> tuple[jax.Array, bool]:
        """One optimizer step; the mean loss, and whether any process wants to stop, so that all stop at one step."""
        self.step += 1
        self.rate = common.learning_rate(self.args, self.step, self.world.size)
        batches = [self.train_data.draw(self.step, index) for index in range(self.args.gradient_accumulation_steps)]
        rows = self.on_devices(np.stack(batches), ROWS_BY_RANK)
        wish = self.on_devices(np.full(1, stop, np.float32), BY_RANK)
        scales = np.array([self.rate, *gpt_jax.bias_corrections(self.step)], np.float32)
        self.state, loss, stopping = self.train_step(self.state, rows, wish, scales)
        return loss, bool(stopping)

    def validate(self, data: Samples) -> float:
        rows = self.on_devices(np.stack(list(data.windows())), ROWS_BY_RANK)
        return float(self.mean_loss(self.state.weights, rows))

    def save(self, last: bool, measured: dict[str, float]) -> None:
        """Process 0 writes. A full disk loses a checkpoint and not the run, unless it is the last one."""
        if self.world.rank:
            return
        args, state = self.args, jax.tree.map(np.asarray, self.state)
        try:
            path = save_checkpoint(Path(args.checkpoint_dir), self.step, vars(args), state, args.keep_checkpoints)
        except OSError as error:
            self.report.event("checkpoint_failed", step=self.step, path=args.checkpoint_dir, why=str(error))
            if last:
                raise
        else:
            size = path.stat().st_size
            self.report.event("checkpoint", step=self.step, path=str(path), size_bytes=size, **measured)

    def resume(self) -> None:
        """Load the same checkpoint in every process; process 0 decides what `auto` is, others may see other files."""
        path = self.args.resume_from
        if path == "auto":
            newest = np.int32(self.newest_valid() if self.world.rank == 0 else 0)
            step = int(multihost_utils.broadcast_one_to_all(newest))
            path = step and str(Path(self.args.checkpoint_dir, f"checkpoint_step_{step}{ENDING}"))
        if not path:
            return
        try:
            step, was, state = load_checkpoint(Path(path))
        except Unusable as why:
            raise Refused(f"cannot resume from {path}: {why}") from None
        if other := [f"--{name} {was[name]}" for name in MODEL_OPTIONS if was[name] != getattr(self.args, name)]:
            raise Refused(f"cannot resume from {path}: its model has {' '.join(other)}")
        self.state, self.step = self.on_devices(state), step
        self.report.event("resumed", step=self.step, path=path)

    def newest_valid(self) -> int:
        """Its step; 0: there is none."""
        for step, path in common.list_checkpoints(Path(self.args.checkpoint_dir), ENDING):
            try:
                load_checkpoint(path)
            except Unusable as why:
                self.report.event("checkpoint_skipped", path=str(path), why=str(why))
            else:
                return step
        return 0

    def run(self, stop_signals: list[int]) -> int:
        """Train to the last step, or to the step at which the processes agree to stop. Returns the exit code."""
        args, first = self.args, self.step + 1
        tokens_per_step = args.batch_size * args.block_size * args.gradient_accumulation_steps * self.world.size
        logged, clock, stop = self.step, time.perf_counter(), False
        while self.step < args.total_steps and not stop:
            loss, stop = self.advance(bool(stop_signals))
            time.sleep(args.step_delay)
            step, measured = self.step, {}
            end = step == args.total_steps or stop
            if step == first or step % args.log_every == 0 or end:
                value, pause = float(loss), time.perf_counter()
                speed = tokens_per_step * (step - logged) / (pause - clock)
                self.report.metrics(step, loss=value, lr=self.rate, tokens_per_s=round(speed, 1))
                logged, clock = step, pause
            pause = time.perf_counter()
            due = step == args.total_steps or (args.eval_every and step % args.eval_every == 0)
            if due and self.valid_data:
                measured = {"val_loss": self.validate(self.valid_data)}
                self.report.metrics(step, **measured)
            if end or (args.checkpoint_every and step % args.checkpoint_every == 0):
                self.save(end, measured)
            clock += time.perf_counter() - pause  # tokens_per_s is about training alone
        stopped = self.step < args.total_steps
        self.report.event("stopped" if stopped else "finished", step=self.step)
        return TERMINATED if stopped else 0


def train(args: argparse.Namespace, world: World) -> int:
    if args.batch_is_global:
        if args.batch_size % world.size:
            raise Refused(f"--batch_size {args.batch_size} cannot be shared out among {world.size} processes")
        args.batch_size //= world.size
    stop_signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop_signals.append(number))
    mesh = world.join(args)
    report = Report(args, world.rank)
    trainer = Trainer(args, world, mesh, report)
    trainer.resume()
    code = trainer.run(stop_signals)
    report.close()
    if world.size > 1:
        jax.distributed.shutdown()  # waits for all: no process may be seen to end while process 0 still writes
    return code


def main(argv: list[str]) -> int:
    try:
        args = parse(argv)
        for path in filter(None, (args.train_data_path, args.valid_data_path)):
            common.map_tokens(path, args)
        return train(args, World.find(args))
    except Refused as why:
        print(f"train_jax: {why}", file=sys.stderr, flush=True)
        return leave(2)
    except Exception:
        traceback.print_exc()
        return leave(1)


def leave(code: int) -> int:
    """Among others, at once: on its way out JAX would wait for processes that are gone or wait for this one."""
    if jax.distributed.is_initialized():
        sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
