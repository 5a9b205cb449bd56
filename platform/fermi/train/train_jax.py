"""A small GPT trained with JAX over processes of one device each, data parallel or with weights in shards: the
reference trainer for JAX.

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
import signal
import sys
import time
import traceback
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

try:
    import jax
except ModuleNotFoundError as missing:
    if missing.name != "jax" or __name__ != "__main__":
        raise
    print(f"train_jax: {missing}: install it with `pip install jax`, or with `pip install 'jax[cuda13]'` for NVIDIA "
          "GPUs (https://docs.jax.dev/en/latest/installation.html)", file=sys.stderr)  # fmt: skip
    sys.exit(2)
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from fermi.train import common, gpt_jax, terminal
from fermi.train.common import CheckpointError, ConfigError, Report, Samples
from fermi.train.mesh_jax import RANK_AXES, REPLICATED, ROWS_SHARDED_BY_RANK, SHARDED_BY_RANK, MeshLayout, scan_blocks
from fermi.train.world_jax import JaxWorld

MODEL_OPTIONS = ("vocab_size", "block_size", "n_layer", "n_head", "n_embd")
CHECKPOINT_SUFFIX = ".npz"
EXIT_TERMINATED = 128 + signal.SIGTERM


# --- Options ------------------------------------------------------------------------------------------------


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = common.make_parser("train_jax", __doc__, dtypes=("float32", "bfloat16"))
    add, positive, natural = parser.add_argument, common.at_least(1), common.at_least(0)
    on_off = argparse.BooleanOptionalAction
    add("--batch_is_global", action=on_off, default=False, help="divide --batch_size among the processes")
    add("--fsdp_parallel", type=positive, default=1, help="processes that share weights and optimizer state")
    add("--remat", action=on_off, default=False, help="recompute each block in the backward pass to save memory")
    add("--prefetch", type=natural, default=2, help="batches prepared in advance; 0: off")
    add("--coordinator_address", help="host:port of process 0")
    add("--num_processes", type=positive)
    add("--process_id", type=natural)
    add("--local_rank", type=natural, help="device of this machine; default: LOCAL_RANK, else the first")
    add("--initialization_timeout_seconds", type=positive, default=300, help="seconds to wait for all processes")
    add(
        "--heartbeat_timeout_seconds",
        type=positive,
        default=100,
        help="seconds after which a silent process counts as dead",
    )
    return common.parse_args(parser, argv)


# --- Checkpoints --------------------------------------------------------------------------------------------


class TrainState(NamedTuple):
    """Everything that a run needs to continue, except its options."""

    weights: gpt_jax.Weights
    means: gpt_jax.Weights
    squares: gpt_jax.Weights


NamedArrays = Iterable[tuple[str, np.ndarray]]


def save_checkpoint(folder: Path, step: int, options: dict[str, Any], arrays: NamedArrays, keep: int) -> Path:
    """Save a checkpoint and return its path; one array is in memory at a time."""

    def write(file: Any) -> None:
        about = np.array(json.dumps({"step": step, "options": options}))
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in chain([("about", about)], arrays):
                add(archive, name, array)

    def add(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
        with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, array, allow_pickle=False)

    return common.save_checkpoint(folder, step, CHECKPOINT_SUFFIX, keep, write)


@contextmanager
def open_checkpoint(path: Path) -> Iterator[Any]:
    """Yield a checkpoint's arrays, each of which is read on access. Raise CheckpointError."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            yield arrays
    except Exception as error:  # a damaged file can fail in any way
        raise CheckpointError(str(error).split("\n")[0]) from error


def read_checkpoint_header(path: Path) -> tuple[int, dict[str, Any]]:
    """Return the step and the options after reading and verifying the whole file. Raise CheckpointError."""
    with open_checkpoint(path) as arrays:
        if damaged := arrays.zip.testzip():
            raise CheckpointError(f"{damaged} is damaged")
        names = [{key.split("/")[1] for key in arrays if key.startswith(f"{kind}/")} for kind in TrainState._fields]
        if not names[0] or names.count(names[0]) != len(names):
            raise CheckpointError("not a checkpoint of this trainer")
        about = json.loads(arrays["about"].item())
        return about["step"], about["options"]


def load_state(path: Path, put: Callable[[str, np.ndarray], Any]) -> TrainState:
    """Return the state of a checkpoint. Raise CheckpointError."""
    state = TrainState({}, {}, {})
    with open_checkpoint(path) as arrays:
        for kind, name in (key.split("/") for key in arrays if key != "about"):
            getattr(state, kind)[name] = put(name, arrays[f"{kind}/{name}"])
    return state


# --- Training -----------------------------------------------------------------------------------------------


class JaxTrainer:
    """Model, optimizer and data of one process. `step` counts the optimizer steps done, over all attempts."""

    def __init__(self, args: argparse.Namespace, world: JaxWorld, devices: list[Any], report: Report) -> None:
        self.args, self.world, self.report = args, world, report
        valid, place = args.valid_data_path, (world.rank, world.size)
        self.train_data = Samples(args.train_data_path, args, *place)
        self.valid_data = Samples(valid, args, *place) if valid else None
        self.valid_rows: jax.Array | None = None
        modern = all(float(getattr(device, "compute_capability", 0)) >= 8 for device in devices)
        self.dtype = {"auto": "bfloat16" if modern else "float32"}.get(args.dtype, args.dtype)
        weights = gpt_jax.make_initial_weights(args)
        self.layout = layout = MeshLayout(devices, args.fsdp_parallel, weights)
        zeros = {name: np.zeros(weight.shape, np.float32) for name, weight in weights.items()}
        self.state = TrainState(
            *({name: layout.shard(name, w) for name, w in tree.items()} for tree in (weights, zeros, zeros))
        )
        self.step, self.rate = 0, 0.0
        specs = TrainState(layout.specs, layout.specs, layout.specs)
        step_takes, step_gives = (
            (specs, ROWS_SHARDED_BY_RANK, SHARDED_BY_RANK, REPLICATED),
            (specs, REPLICATED, REPLICATED),
        )
        self.train_step = jax.jit(layout.by_rank(self.local_step, step_takes, step_gives), donate_argnums=0)
        self.mean_loss = jax.jit(layout.by_rank(self.local_loss, (layout.specs, ROWS_SHARDED_BY_RANK), REPLICATED))
        about = {
            "device": jax.local_devices()[0].platform,
            "dtype": self.dtype,
            **common.describe_batch(args, world.size),
        }
        report.event("started", world_size=world.size, **about, parameters=sum(w.size for w in weights.values()))

    def loss(self, weights: gpt_jax.Weights, batch: jax.Array) -> jax.Array:
        remat = self.args.remat
        pass_on = partial(scan_blocks, remat=remat) if remat or self.layout.split else gpt_jax.apply_blocks
        return gpt_jax.compute_loss(weights, batch, self.args, self.dtype, self.layout.load_weight, pass_on)

    def local_step(self, state: TrainState, rows: jax.Array, stop: jax.Array, scales: jax.Array) -> Any:
        """Return one rank's part of an optimizer step: `rows` are its micro batches, `scales` the learning rate and the
        bias corrections. Gradients, loss and the request to stop are reduced together."""

        def micro_step(sums: Any, batch: jax.Array) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, sums, jax.value_and_grad(self.loss)(state.weights, batch)), None

        nothing = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, state.weights))
        sums, _ = jax.lax.scan(micro_step, nothing, rows)
        loss, gradients = jax.tree.map(lambda value: value / len(rows), sums)
        gradients, (loss, stop) = self.layout.mean(gradients, loss, stop)
        gradients = gpt_jax.clip_gradients(gradients, self.layout.norm(gradients), self.args.grad_clip)
        new = gpt_jax.apply_adamw(*state, gradients, scales[0], scales[1:], self.args.weight_decay)
        return TrainState(*new), loss, stop[0] > 0

    def local_loss(self, weights: gpt_jax.Weights, rows: jax.Array) -> jax.Array:
        losses = jax.lax.map(lambda batch: self.loss(weights, batch), rows)
        return jax.lax.pmean(losses.mean(), RANK_AXES)

    def read_samples(self, step: int) -> jax.Array:
        """Return this process's samples of an optimizer step, on its device."""
        batches = [self.train_data.draw(step, index) for index in range(self.args.gradient_accumulation_steps)]
        return self.layout.put_rows(np.stack(batches), ROWS_SHARDED_BY_RANK)

    def advance(self, rows: jax.Array, stop: bool) -> tuple[jax.Array, bool]:
        """Do one optimizer step; return the mean loss, and whether any process wants to stop, so that all stop at one
        step."""
        self.step += 1
        self.rate = common.compute_learning_rate(self.args, self.step, self.world.size)
        wish = self.layout.put_rows(np.full(1, stop, np.float32), SHARDED_BY_RANK)
        scales = np.array([self.rate, *gpt_jax.compute_bias_corrections(self.step)], np.float32)
        self.state, loss, stopping = self.train_step(self.state, rows, wish, scales)
        return loss, bool(stopping)

    def validate(self, data: Samples) -> float:
        """Return the mean loss of the validation windows, which are the same each time and stay on the device."""
        if self.valid_rows is None:
            self.valid_rows = self.layout.put_rows(np.stack(list(data.windows())), ROWS_SHARDED_BY_RANK)
        return float(self.mean_loss(self.state.weights, self.valid_rows))

    def whole_state(self) -> Iterator[tuple[str, np.ndarray]]:
        for kind, tree in self.state._asdict().items():
            yield from ((f"{kind}/{name}", self.layout.gather(name, array)) for name, array in tree.items())

    def save(self, last: bool, measured: dict[str, float]) -> None:
        """Save a checkpoint on process 0; where weights are sharded, the others send theirs, even if process 0 cannot
        write. A full disk loses a checkpoint and not the run, unless it is the last one."""
        args, arrays = self.args, self.whole_state()
        try:
            if self.world.rank == 0:
                folder = Path(args.checkpoint_dir)
                path = save_checkpoint(folder, self.step, vars(args), arrays, args.keep_checkpoints)
                self.report.event(
                    "checkpoint", step=self.step, path=str(path), size_bytes=path.stat().st_size, **measured
                )
        except OSError as error:
            self.report.event("checkpoint_failed", step=self.step, path=args.checkpoint_dir, why=str(error))
            if last:
                raise
        finally:
            if self.layout.split:
                deque(arrays, maxlen=0)

    def resume(self) -> None:
        """Load the same checkpoint in every process; process 0 decides what `auto` is, others may see other files."""
        path = self.args.resume_from
        if path == "auto":
            newest = np.int32(self.newest_valid() if self.world.rank == 0 else 0)
            step = int(multihost_utils.broadcast_one_to_all(newest))
            path = step and str(Path(self.args.checkpoint_dir, f"checkpoint_step_{step}{CHECKPOINT_SUFFIX}"))
        if not path:
            return
        try:
            step, was = read_checkpoint_header(Path(path))
            if other := [f"--{name} {was[name]}" for name in MODEL_OPTIONS if was[name] != getattr(self.args, name)]:
                raise ConfigError(f"cannot resume from {path}: its model has {' '.join(other)}")
            self.state, self.step = load_state(Path(path), self.layout.shard), step
        except CheckpointError as why:
            raise ConfigError(f"cannot resume from {path}: {why}") from None
        self.report.event("resumed", step=self.step, path=path)

    def newest_valid(self) -> int:
        """Return the step of the newest valid checkpoint, 0 where there is none."""
        for step, path in common.list_checkpoints(Path(self.args.checkpoint_dir), CHECKPOINT_SUFFIX):
            try:
                read_checkpoint_header(path)
            except CheckpointError as why:
                self.report.event("checkpoint_skipped", path=str(path), why=str(why))
            else:
                return step
        return 0

    def run(self, stop_signals: list[int]) -> int:
        """Train to the last step, or to the step at which the processes agree to stop. Returns the exit code."""
        steps = range(self.step + 1, self.args.total_steps + 1)
        with closing(common.prefetch_batches(self.read_samples, steps, self.args.prefetch)) as batches:
            self.train(batches, stop_signals)
        stopped = self.step < self.args.total_steps
        self.report.event("stopped" if stopped else "finished", step=self.step)
        return EXIT_TERMINATED if stopped else 0

    def train(self, batches: Iterator[jax.Array], stop_signals: list[int]) -> None:
        args, first = self.args, self.step + 1
        tokens_per_step = args.batch_size * args.block_size * args.gradient_accumulation_steps * self.world.size
        logged, clock = self.step, time.perf_counter()
        for rows in batches:
            loss, stop = self.advance(rows, bool(stop_signals))
            self.report.progress(self.step)
            time.sleep(args.step_delay)
            step, measured = self.step, {}
            end = step == args.total_steps or stop
            if step == first or step % args.log_every == 0 or end:
                value, pause = float(loss), time.perf_counter()
                speed = tokens_per_step * (step - logged) / (pause - clock)
                done = {"tokens_per_s": round(speed, 1), "tflops": common.compute_tflops(args, speed)}
                self.report.metrics(step, loss=value, lr=self.rate, **done)
                logged, clock = step, pause
            pause = time.perf_counter()
            due = step == args.total_steps or (args.eval_every and step % args.eval_every == 0)
            if due and self.valid_data:
                measured = {"val_loss": self.validate(self.valid_data)}
                self.report.metrics(step, **measured)
            if end or (args.checkpoint_every and step % args.checkpoint_every == 0):
                self.save(end, measured)
            clock += time.perf_counter() - pause  # tokens_per_s is about training alone
            if stop:
                return


def train(args: argparse.Namespace, world: JaxWorld) -> int:
    if args.batch_is_global:
        if args.batch_size % world.size:
            raise ConfigError(f"--batch_size {args.batch_size} cannot be shared out among {world.size} processes")
        args.batch_size //= world.size
    if world.size % args.fsdp_parallel:
        raise ConfigError(f"--fsdp_parallel {args.fsdp_parallel} does not divide the {world.size} processes")
    stop_signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop_signals.append(number))
    devices = world.join(args)
    report = terminal.make_report(args, world.rank)
    trainer = JaxTrainer(args, world, devices, report)
    trainer.resume()
    code = trainer.run(stop_signals)
    report.close()
    if world.size > 1:
        jax.distributed.shutdown()  # waits for all: no process may be seen to end while process 0 still writes
    return code


def main(argv: list[str]) -> int:
    try:
        args = parse_args(argv)
        for path in filter(None, (args.train_data_path, args.valid_data_path)):
            common.map_tokens(path, args)
        return train(args, JaxWorld.find(args))
    except ConfigError as why:
        print(f"train_jax: {why}", file=sys.stderr, flush=True)
        return exit_process(2)
    except Exception:
        traceback.print_exc()
        return exit_process(1)


def exit_process(code: int) -> int:
    """Return the exit code; where JAX's distributed runtime is up, exit at once: otherwise JAX would wait for processes
    that have ended or wait for this one."""
    if jax.distributed.is_initialized():
        sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
