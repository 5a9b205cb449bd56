"""What a reference trainer needs independent of the framework: options, order of the data, learning rate, output lines,
checkpoint files. Needs numpy only.

`train_ddp` has all this in its one file, so that it can be copied; a test keeps the two equal.
"""

import argparse
import hashlib
import json
import math
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

import numpy as np

T = TypeVar("T")


class ConfigError(Exception):
    """The options or data cannot work: one line on stderr, exit code 2."""


class CheckpointError(Exception):
    """A checkpoint is missing, incomplete, damaged, or of another program."""


# --- Options ------------------------------------------------------------------------------------------------

BATCH_SIZE_HELP = (
    "sequences per process and micro step; an optimizer step has batch_size x world size x accumulation steps"
)
LR_SCALING_HELP = "the learning rate times the number of data-parallel processes, or its square root"
VOCAB_SIZE_HELP = "more than the largest token: 256 for text as bytes; GPT-2's BPE has 50257, for which 50304 is usual"


class TrainerParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def make_parser(name: str, about: str | None, dtypes: Sequence[str]) -> TrainerParser:
    """Return a parser of the options that all trainers have; defaults come from FERMI_ variables."""
    env, on_off = os.environ.get, argparse.BooleanOptionalAction
    layout = argparse.RawDescriptionHelpFormatter
    parser = TrainerParser(name, description=about, formatter_class=layout, allow_abbrev=False)
    add, positive, natural = parser.add_argument, at_least(1), at_least(0)
    add("--train_data_path", default=env("FERMI_TRAIN_DATA"))
    add("--valid_data_path", default=env("FERMI_VALID_DATA"), help="none: no validation")
    add("--batch_size", type=positive, default=8, help=BATCH_SIZE_HELP)
    add("--gradient_accumulation_steps", type=positive, default=1, help="micro steps per optimizer step")
    add("--num_workers", type=natural, default=0, help="accepted for compatibility; use --prefetch")
    add("--preload", action=on_off, default=False, help="load all data into memory first; each process holds a copy")
    add("--total_steps", type=positive, default=300)
    add("--seed", type=int, default=1337)

    add("--learning_rate", type=float, default=3e-3)
    scaling = ("none", "linear", "sqrt")
    add("--lr_scaling", "--learning_rate_scaling", choices=scaling, default="none", help=LR_SCALING_HELP)
    add("--lr_schedule", choices=("cosine", "constant"), default="cosine", help="after the warm-up")
    add("--min_lr", "--min_learning_rate", type=float, help="final rate of cosine; default: a tenth of the peak")
    add("--warmup_steps", type=natural, default=20)
    add("--weight_decay", type=float, default=0.1)
    add("--grad_clip", "--gradient_clipping", type=float, default=1.0, help="0: off")
    add("--dtype", choices=("auto", *dtypes), default="auto", help="auto: the best one that every device supports")

    add("--checkpoint_dir", default=env("FERMI_CHECKPOINT_DIR") or "checkpoints")
    add("--checkpoint_every", type=natural, default=100, help="steps; 0: only at the end")
    add("--keep_checkpoints", type=positive, default=3)
    add("--resume_from", default=env("FERMI_RESUME_FROM"), help="a checkpoint, or auto: the newest valid one")

    add("--log_every", type=positive, default=10)
    add("--eval_every", type=natural, default=100, help="0: only at the end")
    add("--eval_batches", type=positive, default=8, help="global batches of validation windows")
    add("--use_wandb", action=on_off, default=False)
    add("--wandb_project", default="fermi")
    add("--wandb_run_name")
    add("--use_tensorboard", action=on_off, default=False)
    add("--tensorboard_dir", help="default: tensorboard in --checkpoint_dir")
    add("--log_file", help="also append rank 0's lines to this file")
    add("--step_delay", type=float, default=0.0, help="seconds to sleep per step, to simulate long runs")

    add("--n_layer", "--layers", type=positive, default=2)
    add("--n_head", "--heads", type=positive, default=4)
    add("--n_embd", "--hidden_size", type=positive, default=64)
    add("--block_size", "--sequence_length", type=positive, default=64)
    add("--vocab_size", type=positive, default=256, help=VOCAB_SIZE_HELP)
    return parser


def parse_args(parser: TrainerParser, argv: list[str]) -> argparse.Namespace:
    """Return the parsed options. Names may have dashes or underscores. Raise ConfigError."""
    words = convert_hyperparameters(os.environ.get("FERMI_HYPERPARAMETERS") or "{}") + argv
    args = parser.parse_args([re.sub("^--(no[-_])?([^=]+)", normalize_option, word) for word in words])
    if args.n_embd % args.n_head:
        raise ConfigError(f"--n_embd {args.n_embd} is not divisible by --n_head {args.n_head}")
    if not args.train_data_path:
        raise ConfigError("--train_data_path is missing")
    return args


def at_least(low: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if (value := int(text)) < low:
            raise argparse.ArgumentTypeError(f"{value} is less than {low}")
        return value

    return number


def normalize_option(option: re.Match[str]) -> str:
    return f"--{'no-' if option[1] else ''}{option[2].replace('-', '_')}"


def convert_hyperparameters(text: str) -> list[str]:
    """Return `{"batchSize": 8, "useWandb": true}` as the options `--batch_size=8 --use_wandb`."""
    words = []
    for name, value in json.loads(text).items():
        option = re.sub("([A-Z])", r"_\1", name).lower()
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no_'}{option}")
        elif value is not None:
            words.append(f"--{option}={value}")
    return words


def describe_batch(args: argparse.Namespace, world_size: int) -> dict[str, Any]:
    """Return the effective batch size over all ranks, and the learning rate after the warm-up."""
    found = {name: getattr(args, name) for name in ("batch_size", "gradient_accumulation_steps", "lr_scaling")}
    effective = args.batch_size * args.gradient_accumulation_steps * world_size
    return {
        **found,
        "effective_batch_size": effective,
        "peak_learning_rate": compute_peak_learning_rate(args, world_size),
    }


def compute_peak_learning_rate(args: argparse.Namespace, world_size: int) -> float:
    return args.learning_rate * {"none": 1, "linear": world_size, "sqrt": math.sqrt(world_size)}[args.lr_scaling]


def compute_learning_rate(args: argparse.Namespace, step: int, world_size: int) -> float:
    """Return the learning rate of the optimizer step `step`, counted from 1."""
    peak = compute_peak_learning_rate(args, world_size)
    if step <= args.warmup_steps:
        return peak * step / args.warmup_steps
    if args.lr_schedule == "constant":
        return peak
    low = peak / 10 if args.min_lr is None else args.min_lr
    done = (step - args.warmup_steps) / (args.total_steps - args.warmup_steps)
    return low + (peak - low) * (1 + math.cos(math.pi * done)) / 2


# --- Data ---------------------------------------------------------------------------------------------------


def compute_tflops(args: argparse.Namespace, tokens_per_second: float) -> float:
    """Return the model's TFLOP/s over all ranks: for each token 6 operations for each weight that it is multiplied
    with, and 12 · layers · width · context for attention, forward and backward (Chowdhery et al. 2022,
    arXiv:2204.02311, appendix B). Recomputation to save memory does not count."""
    weights = 12 * args.n_layer * args.n_embd**2 + args.vocab_size * args.n_embd
    each = 6 * weights + 12 * args.n_layer * args.n_embd * args.block_size
    return float(f"{each * tokens_per_second / 1e12:.4g}")


def hash_to_int(*parts: object) -> int:
    """Return a 63-bit number that depends on `parts` only: the same on every rank, machine and attempt."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


def map_tokens(path: str, args: argparse.Namespace) -> np.ndarray:
    """Return the memory-mapped token file. Raise ConfigError where it cannot be read, is too short or has tokens beyond
    the vocabulary."""
    try:
        size = os.stat(path).st_size
        if size % 2:
            raise ConfigError(f"{path} has {size} bytes: not a whole number of uint16 tokens")
        if size // 2 <= args.block_size:
            raise ConfigError(f"{path} has {size // 2} tokens: too few for --block_size {args.block_size}")
        tokens = np.memmap(path, np.uint16, "r")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if (largest := int(tokens[: 1 << 20].max())) >= args.vocab_size:
        raise ConfigError(explain_large_token(path, largest, args.vocab_size))
    return tokens


def explain_large_token(path: str, largest: int, vocab_size: int) -> str:
    """Return the message for a token beyond the vocabulary. GPT-2's BPE, which most tokenised files hold, has 50257
    tokens; 50304 is the next multiple of 64."""
    said = f"{path} has the token {largest}: beyond --vocab_size {vocab_size}; pass"
    if 256 <= largest < 50257:
        return f"{said} --vocab_size 50304 if these are GPT-2's tokens, else {largest + 1} at least"
    return f"{said} --vocab_size {largest + 1} at least"


class Samples:
    """A token file as one rank's batches: int32 arrays (batch_size, block_size + 1), inputs and targets in one.

    A sample's place in the global batch counts micro steps, then ranks, then the rows of a batch; what is drawn
    depends on (seed, step, place) alone. So each rank gets its own samples, all ranks together get the same ones
    however the global batch is divided, and a resumed run goes on with exactly what it would have seen.
    """

    def __init__(self, path: str, args: argparse.Namespace, rank: int, world_size: int) -> None:
        self.tokens, self.args, self.rank, self.world_size = map_tokens(path, args), args, rank, world_size
        if args.preload:
            self.tokens = np.array(self.tokens)
        self.starts = len(self.tokens) - args.block_size

    def draw(self, step: int, micro_step: int) -> np.ndarray:
        return self.batch(hash_to_int(self.args.seed, step, place) % self.starts for place in self.places(micro_step))

    def windows(self) -> Iterator[np.ndarray]:
        """Yield this rank's share of fixed windows, spread evenly over the file: `eval_batches` global batches of
        them."""
        batches = self.args.eval_batches * self.args.gradient_accumulation_steps
        total = batches * self.world_size * self.args.batch_size
        for index in range(batches):
            yield self.batch(place * self.starts // total for place in self.places(index))

    def places(self, index: int) -> range:
        first = (index * self.world_size + self.rank) * self.args.batch_size
        return range(first, first + self.args.batch_size)

    def batch(self, starts: Iterable[int]) -> np.ndarray:
        rows = [self.tokens[start : start + self.args.block_size + 1] for start in starts]
        return np.stack(rows).astype(np.int32)


def prefetch_batches(prepare: Callable[[int], T], steps: Iterable[int], ahead: int) -> Generator[T, None, None]:
    """Yield `prepare` of each step, in order; a thread prepares up to `ahead` of them in advance."""
    coming = iter(steps)
    if not ahead:
        yield from map(prepare, coming)
        return
    with ThreadPoolExecutor(1, "prefetch") as thread:
        waiting = deque(thread.submit(prepare, step) for step in islice(coming, ahead))
        while waiting:
            ready = waiting.popleft().result()
            waiting.extend(thread.submit(prepare, step) for step in islice(coming, 1))
            yield ready


# --- Output -------------------------------------------------------------------------------------------------


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")  # one write, so that the lines of ranks that share a pipe do not mix
    sys.stdout.flush()


@contextmanager
def skip_if_unavailable(name: str, package: str) -> Iterator[None]:
    """Context in which a failure of an optional feature is printed and not raised. `package`: what pip installs."""
    try:
        yield
    except ImportError as error:
        print_line(f"{name} cannot be used ({error}): install it with pip install '{package}'")
    except Exception as error:
        print_line(f"{name} cannot be used ({error}): metrics go to standard output")


class Report:
    """Output of rank 0: lines on standard output, its Weights & Biases run and its TensorBoard files, where enabled."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self.speaks, self.wandb, self.tensorboard = rank == 0, None, None
        if self.speaks and args.use_wandb:
            with skip_if_unavailable("Weights & Biases", "wandb>=0.30,<1"):
                import wandb

                self.wandb = wandb.init(project=args.wandb_project, name=args.wandb_run_name, config=vars(args))
        if self.speaks and args.use_tensorboard:
            with skip_if_unavailable("TensorBoard", "tensorboard>=2.20,<3"):
                from tensorboard.summary import Writer

                self.tensorboard = Writer(args.tensorboard_dir or str(Path(args.checkpoint_dir, "tensorboard")))

        self.file = None
        if self.speaks and args.log_file:
            with skip_if_unavailable(args.log_file, ""):
                self.file = open(args.log_file, "a", encoding="utf-8")  # noqa: SIM115

    def event(self, name: str, **values: Any) -> None:
        if self.speaks:
            self.write_line({"event": name, **values})

    def metrics(self, step: int, **values: float) -> None:
        if self.speaks:
            numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}
            self.write_line({"step": step, **numbers, "time": round(time.time(), 3)})
        if self.wandb:
            self.wandb.log(values, step=step)
        if self.tensorboard:
            for name, value in values.items():
                self.tensorboard.add_scalar(name, value, step)

    def write_line(self, line: dict[str, Any]) -> None:
        """Write the line to the file of `--log_file`, and print it."""
        if self.file:
            with skip_if_unavailable(self.file.name, ""):
                print(json.dumps(line), file=self.file, flush=True)
        self.print_line(line)

    def print_line(self, line: dict[str, Any]) -> None:
        print_line(json.dumps(line))

    def progress(self, step: int) -> None:
        """Report that `step` is done; does nothing here, as lines of their own do so often enough."""

    def close(self) -> None:
        if self.wandb:
            self.wandb.finish()
        if self.tensorboard:
            self.tensorboard.close()


# --- Checkpoints --------------------------------------------------------------------------------------------


def list_checkpoints(folder: Path, ending: str) -> list[tuple[int, Path]]:
    """Return (step, path) of each checkpoint, newest first."""
    pattern = rf"checkpoint_step_(\d+){re.escape(ending)}"
    names = ((re.fullmatch(pattern, path.name), path) for path in folder.glob(f"*{ending}"))
    return sorted(((int(name[1]), path) for name, path in names if name), reverse=True)


def save_checkpoint(folder: Path, step: int, ending: str, keep: int, write: Callable[[IO[bytes]], Any]) -> Path:
    """Write a checkpoint atomically (to a temporary name, synced to disk, then renamed) and return its path. Of those
    up to `step`, the last `keep` are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"checkpoint_step_{step}{ending}"
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    finally:
        for left in folder.glob("checkpoint_step_*.partial"):
            left.unlink()
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    for _, old in [(number, old) for number, old in list_checkpoints(folder, ending) if number <= step][keep:]:
        old.unlink()
    return path
