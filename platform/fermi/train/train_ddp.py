"""A small GPT trained with DistributedDataParallel: the reference trainer, and the file to copy for your own.

It needs torch and nothing else of ours, and starts in whichever way is at hand:

    python train_ddp.py --train_data_path train.bin --valid_data_path val.bin                  one process
    python train_ddp.py --distributed --world_size 4 ...                                       mp.spawn
    torchrun --nproc_per_node=4 train_ddp.py --distributed ...
    python -m torch.distributed.launch --nproc_per_node=4 train_ddp.py --distributed ...
    RANK=0 LOCAL_RANK=0 WORLD_SIZE=4 MASTER_ADDR=gn6 MASTER_PORT=29500 python train_ddp.py ... once per rank

Data are uint16 tokens, memory-mapped. Rank 0 prints one JSON object a line: metrics have `step`, the rest `event`.
Exit code 0 when all steps are done, 2 for what cannot work, 143 when SIGTERM stopped it after a checkpoint.
"""

import argparse
import atexit
import contextlib
import ctypes
import datetime
import functools
import gc
import hashlib
import json
import math
import os
import re
import signal
import socket
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

MODEL_OPTIONS = ("vocab_size", "block_size", "n_layer", "n_head", "n_embd")
EXIT_TERMINATED = 128 + signal.SIGTERM

Batch = tuple[torch.Tensor, torch.Tensor]  # tokens and targets, (batch_size, block_size) each


class ConfigError(Exception):
    """The options or data cannot work: one line on stderr, exit code 2."""


# --- Options ------------------------------------------------------------------------------------------------

BATCH_SIZE_HELP = (
    "sequences per process and micro step; an optimizer step has batch_size x world size x accumulation steps"
)
LR_SCALING_HELP = "the learning rate times the number of data-parallel processes, or its square root"
VOCAB_SIZE_HELP = "more than the largest token: 256 for text as bytes; GPT-2's BPE has 50257, for which 50304 is usual"


class TrainerParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def parse_args(argv: list[str], kind: "type[Trainer] | None" = None) -> argparse.Namespace:
    """Return the parsed options. Names may have dashes or underscores; defaults come from the platform's FERMI_
    variables. Raise ConfigError."""
    env, kind = os.environ.get, kind or Trainer
    parser = make_parser(kind)
    words = convert_hyperparameters(env("FERMI_HYPERPARAMETERS") or "{}") + argv
    args = parser.parse_args([re.sub("^--(no[-_])?([^=]+)", normalize_option, word) for word in words])
    kind.resolve_options(args)
    if args.n_embd % args.n_head:
        raise ConfigError(f"--n_embd {args.n_embd} is not divisible by --n_head {args.n_head}")
    if not args.train_data_path:
        raise ConfigError("--train_data_path is missing")
    return args


def make_parser(kind: "type[Trainer]") -> TrainerParser:
    env = os.environ.get
    about, layout = sys.modules[kind.__module__].__doc__, argparse.RawDescriptionHelpFormatter
    parser = TrainerParser(kind.name, description=about, formatter_class=layout, allow_abbrev=False)
    add, positive, natural, on_off = parser.add_argument, at_least(1), at_least(0), argparse.BooleanOptionalAction
    add("--distributed", action=on_off, default=False)
    add("--world_size", type=positive, help="processes to start without a launcher; default: one per GPU")
    add("--backend", choices=("auto", "nccl", "gloo"), default=env("FERMI_BACKEND") or "auto")
    timeout = env("FERMI_TIMEOUT_SECONDS")
    add("--timeout_seconds", type=positive, default=timeout, help="timeout of collective operations")
    add("--local_rank", type=natural, default=0, help="set by torch.distributed.launch")

    add("--train_data_path", default=env("FERMI_TRAIN_DATA"))
    add("--valid_data_path", default=env("FERMI_VALID_DATA"), help="none: no validation")
    add("--batch_size", type=positive, default=8, help=BATCH_SIZE_HELP)
    mine = "this process's part of the batch, where the parts differ; all processes must state theirs"
    add("--local_batch_size", type=positive, default=env("FERMI_LOCAL_BATCH_SIZE"), help=mine)
    add("--gradient_accumulation_steps", type=positive, default=1, help="micro steps per optimizer step")
    add("--num_workers", type=natural, default=0, help="processes that prepare this rank's batches in advance")
    add("--preload", action=on_off, default=False, help="load all data into memory first; each rank holds a copy")
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

    dtypes, auto = ("auto", "float32", "float16", "bfloat16"), "bfloat16 where every GPU has it; float32 on CPU"
    add("--dtype", choices=dtypes, default="auto", help=f"auto: {auto}; float16 otherwise")
    add("--tf32", action=on_off, default=True)

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
    add("--dropout", type=float, default=0.0)

    kind.add_options(parser)
    return parser


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
    options = []
    for name, value in json.loads(text).items():
        option = re.sub("([A-Z])", r"_\1", name).lower()
        if isinstance(value, bool):
            options.append(f"--{'' if value else 'no_'}{option}")
        elif value is not None:
            options.append(f"--{option}={value}")
    return options


# --- Ranks --------------------------------------------------------------------------------------------------


class World(NamedTuple):
    """Rank, size and device of this process, from the launcher's variables."""

    rank: int
    local_rank: int
    size: int
    device: torch.device
    distributed: bool

    @classmethod
    def from_env(cls, args: argparse.Namespace) -> "World":
        """Return this process's world. Raise ConfigError where variables, options and GPUs contradict each other."""
        env, gpus = os.environ, torch.cuda.device_count()
        missing = [name for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in env]
        if "RANK" in env and missing:
            raise ConfigError(f"RANK is set, but {' and '.join(missing)} not")
        rank, size = (int(env["RANK"]), int(env["WORLD_SIZE"])) if "RANK" in env else (0, 1)
        local_rank = int(env.get("LOCAL_RANK", args.local_rank))
        if args.world_size not in (None, size):
            raise ConfigError(f"--world_size is {args.world_size}, but the launcher started {size} processes")
        if not 0 <= rank < size:
            raise ConfigError(f"RANK is {rank}, but must be below WORLD_SIZE, {size}")
        if args.backend == "nccl" and not gpus:
            raise ConfigError("--backend nccl needs a GPU, and none is visible: use gloo or auto")
        index = local_rank if gpus > 1 else 0  # some launchers show each process its own GPU only
        if index >= gpus > 0:
            raise ConfigError(f"local rank {local_rank} has no GPU: {gpus} visible")
        device = torch.device("cuda", index) if gpus else torch.device("cpu")
        return cls(rank, local_rank, size, device, distributed=size > 1 or args.distributed)

    def select_device(self, args: argparse.Namespace) -> None:
        """Select the device, and print this rank's place."""
        env, on_gpu = os.environ, self.device.type == "cuda"
        address, port = (env["MASTER_ADDR"], env["MASTER_PORT"]) if "RANK" in env else ("none", "none")
        print_line(f"[Rank {self.rank}] World Size: {self.size}, Local Rank: {self.local_rank}, Master Addr: {address}")
        print_line(f"[Rank {self.rank}] Master Port: {port}, Device: {self.device}")
        if on_gpu:
            torch.cuda.set_device(self.device)
            torch.set_float32_matmul_precision("high" if args.tf32 else "highest")
        elif threads := env.get("OMP_NUM_THREADS") or (self.distributed and 1):
            torch.set_num_threads(int(threads))

    def join(self, args: argparse.Namespace) -> None:
        """Initialise the process group."""
        self.select_device(args)
        on_gpu = self.device.type == "cuda"
        if self.distributed:
            backend = args.backend if args.backend != "auto" else "nccl" if on_gpu else "gloo"
            bound = self.device if "nccl" in backend else None
            patience = datetime.timedelta(seconds=args.timeout_seconds) if args.timeout_seconds else None
            dist.init_process_group(backend, timeout=patience, rank=self.rank, world_size=self.size, device_id=bound)

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        if self.distributed:
            dist.all_reduce(value)
            value /= self.size
        return value

    def share(self, value: Any) -> Any:
        """Return rank 0's value, on every rank."""
        shared = [value]
        if self.distributed:
            dist.broadcast_object_list(shared, device=self.device)
        return shared[0]

    def leave(self) -> None:
        """Wait for all ranks and destroy the process group: no rank may end while rank 0 still writes."""
        if self.distributed:
            dist.barrier()
            dist.destroy_process_group()


def spawn_ranks(args: argparse.Namespace, argv: list[str], kind: "type[Trainer]") -> int:
    """Start all processes on this machine; return the exit code of the first to fail."""
    import torch.multiprocessing as mp

    gpus = torch.cuda.device_count()
    size = args.world_size or max(gpus, 1)
    if gpus and size > gpus:
        raise ConfigError(f"--world_size {size} is more than this machine's {gpus} GPUs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, default in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}.items():
        os.environ.setdefault(name, str(default))
    ranks = mp.spawn(run_spawned_rank, args=(size, argv, kind), nprocs=size, join=False)
    signal.signal(signal.SIGTERM, lambda *_: [process.terminate() for process in ranks.processes])
    try:
        while not ranks.join(grace_period=5):
            pass
    except mp.ProcessExitedException as ended:
        return ended.exit_code if ended.exit_code >= 0 else 128 - ended.exit_code
    return 0


def run_spawned_rank(local_rank: int, size: int, argv: list[str], kind: "type[Trainer]") -> NoReturn:
    os.environ.update(RANK=str(local_rank), LOCAL_RANK=str(local_rank), WORLD_SIZE=str(size))
    run_and_exit(functools.partial(main, kind=kind), argv)


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


def map_tokens(path: str, args: argparse.Namespace) -> torch.Tensor:
    """Return the memory-mapped token file. Raise ConfigError where it cannot be read, is too short or has tokens beyond
    the vocabulary."""
    try:
        size = os.stat(path).st_size
        if size % 2:
            raise ConfigError(f"{path} has {size} bytes: not a whole number of uint16 tokens")
        if size // 2 <= args.block_size:
            raise ConfigError(f"{path} has {size // 2} tokens: too few for --block_size {args.block_size}")
        tokens = torch.from_file(path, size=size // 2, dtype=torch.uint16)
        largest = int(tokens[: 1 << 20].int().max())
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    if largest >= args.vocab_size:
        raise ConfigError(explain_large_token(path, largest, args.vocab_size))
    return tokens


def explain_large_token(path: str, largest: int, vocab_size: int) -> str:
    """Return the message for a token beyond the vocabulary. GPT-2's BPE, which most tokenised files hold, has 50257
    tokens; 50304 is the next multiple of 64."""
    said = f"{path} has the token {largest}: beyond --vocab_size {vocab_size}; pass"
    if 256 <= largest < 50257:
        return f"{said} --vocab_size 50304 if these are GPT-2's tokens, else {largest + 1} at least"
    return f"{said} --vocab_size {largest + 1} at least"


class DataShard(NamedTuple):
    """This rank's rows of a global batch: `size` of `total`, from `first` on. `weight` scales its mean loss, so that
    the mean over ranks, by which gradients are reduced, is the mean over samples; 1 where all sizes are equal."""

    first: int
    size: int
    total: int
    weight: float

    @classmethod
    def from_args(cls, args: argparse.Namespace, world: World) -> "DataShard":
        """Return this rank's share; all ranks must call it together."""
        sizes = [args.batch_size] * world.size
        if args.local_batch_size and world.distributed:
            dist.all_gather_object(sizes, args.local_batch_size)
        total, size = sum(sizes), sizes[world.rank]
        return cls(sum(sizes[: world.rank]), size, total, size * world.size / total)


class Samples(Dataset[torch.Tensor]):
    """A token file as this rank's batches.

    A sample's place in the global batch counts micro steps, then ranks, then the rows of a batch; what is drawn
    depends on (seed, step, place) alone. So each rank gets its own samples, all ranks together get the same ones
    however the global batch is divided, and a resumed run goes on with exactly what it would have seen.
    """

    def __init__(self, path: str, args: argparse.Namespace, world: World) -> None:
        self.tokens, self.args, self.world = map_tokens(path, args), args, world
        if args.preload:
            self.tokens = self.tokens.clone()
        self.starts = len(self.tokens) - args.block_size
        self.share = DataShard.from_args(args, world)
        self.coming: Iterator[torch.Tensor] | None = None

    def draw(self, step: int, micro_step: int) -> Batch:
        return self.on_device(next(self.coming) if self.coming is not None else self[step, micro_step])

    def draw_ahead(self, steps: range) -> None:
        """Prepare batches in worker processes: from now on `draw` is called for each micro step of `steps`, in this
        order. No steps: the workers end."""
        micro_steps, on_gpu = range(self.args.gradient_accumulation_steps), self.world.device.type == "cuda"
        self.coming = None
        if self.args.num_workers and steps:
            places = ((step, micro_step) for step in steps for micro_step in micro_steps)
            workers = {"num_workers": self.args.num_workers, "worker_init_fn": bind_to_rank}
            self.coming = iter(DataLoader(self, batch_size=None, sampler=places, pin_memory=on_gpu, **workers))

    def __getitem__(self, place: tuple[int, int]) -> torch.Tensor:
        """Return the rows of (step, micro step)."""
        step, micro_step = place
        return self.read_samples(
            hash_to_int(self.args.seed, step, place) % self.starts for place in self.places(micro_step)
        )

    def windows(self) -> Iterator[Batch]:
        """Yield this rank's share of fixed windows, spread evenly over the file: `eval_batches` global batches of
        them."""
        batches = self.args.eval_batches * self.args.gradient_accumulation_steps
        total = batches * self.share.total
        for index in range(batches):
            yield self.on_device(self.read_samples(place * self.starts // total for place in self.places(index)))

    def places(self, index: int) -> range:
        first = index * self.share.total + self.share.first
        return range(first, first + self.share.size)

    def read_samples(self, starts: Iterable[int]) -> torch.Tensor:
        return torch.stack([self.tokens[start : start + self.args.block_size + 1] for start in starts]).long()

    def on_device(self, rows: torch.Tensor) -> Batch:
        if self.world.device.type == "cuda":
            rows = rows.pin_memory().to(self.world.device, non_blocking=True)
        return rows[:, :-1], rows[:, 1:]


def bind_to_rank(_: int) -> None:
    """Let a data loading worker end with its rank, however the rank ends, and not before: SIGTERM to a whole group
    reaches workers, too, while the rank still has a step to finish. Only a SIGTERM of the rank's own ends a worker."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=exit_on_rank_sigterm, args=(os.getppid(),), daemon=True).start()


def exit_on_rank_sigterm(rank: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != rank:
        pass
    os._exit(0)


# --- Model --------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        width = args.n_embd
        self.n_head, self.dropout = args.n_head, args.dropout
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        dropout = self.dropout if self.training else 0.0
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, self.n_head, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        x = x + F.dropout(self.mix(heads.transpose(1, 2).flatten(2)), dropout)
        return x + F.dropout(self.contract(F.gelu(self.expand(self.norm_2(x)))), dropout)


class GPT(nn.Module):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.token = nn.Embedding(args.vocab_size, args.n_embd)
        self.position = nn.Embedding(args.block_size, args.n_embd)
        self.blocks = nn.ModuleList(Block(args) for _ in range(args.n_layer))
        self.norm = nn.LayerNorm(args.n_embd)
        self.head = nn.Linear(args.n_embd, args.vocab_size, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                into_residual = name.endswith(("mix.weight", "contract.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * args.n_layer) if into_residual else 0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean cross-entropy, in nats per token."""
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return parameter groups for an optimizer: weight decay for matrices, none for biases and norms."""
    matrices = [weight for weight in model.parameters() if weight.dim() >= 2]
    vectors = [weight for weight in model.parameters() if weight.dim() < 2]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]


# --- Checkpoints --------------------------------------------------------------------------------------------


class CheckpointError(Exception):
    """A checkpoint is missing, incomplete, damaged, or of another program."""


def list_checkpoints(folder: Path, suffix: str = ".pt") -> list[tuple[int, Path]]:
    """Return (step, path) of each checkpoint, newest first."""
    name = re.compile(rf"checkpoint_step_(\d+){re.escape(suffix)}")
    names = ((name.fullmatch(path.name), path) for path in folder.glob(f"checkpoint_step_*{suffix}"))
    return sorted(((int(name[1]), path) for name, path in names if name), reverse=True)


def save_checkpoint(path: Path, state: dict[str, Any], keep: int) -> int:
    """Write a checkpoint atomically (to a temporary name, synced to disk, then renamed). Return its size in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    finally:
        for left in path.parent.glob("checkpoint_step_*.partial"):
            left.unlink()
    sync_folder(path.parent)
    for _, old in [(step, old) for step, old in list_checkpoints(path.parent) if step <= state["step"]][keep:]:
        old.unlink()
    return path.stat().st_size


def sync_folder(path: Path) -> None:
    """Sync a folder to disk, so that the names in it survive a power loss."""
    folder = os.open(path, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Return a checkpoint's content. Raise CheckpointError."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch.load alone would not notice flipped bits
            if damaged := archive.testzip():
                raise CheckpointError(f"{damaged} is damaged")
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not {"step", "options", "model", "optimizer", "scaler"} <= state.keys():
            raise CheckpointError("not a checkpoint of this trainer")
    except Exception as error:  # a damaged file can fail in any way
        raise CheckpointError(str(error).split("\n")[0]) from error
    return state


# --- Training -----------------------------------------------------------------------------------------------


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")  # one write, so that the lines of ranks that share a pipe do not mix
    sys.stdout.flush()


@contextlib.contextmanager
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

    def __init__(self, args: argparse.Namespace, world: World) -> None:
        self.speaks, self.wandb, self.tensorboard = world.rank == 0, None, None
        if self.speaks and args.use_wandb:
            with skip_if_unavailable("Weights & Biases", "wandb>=0.30,<1"):
                import wandb

                self.wandb = wandb.init(project=args.wandb_project, name=args.wandb_run_name, config=vars(args))
        if self.speaks and args.use_tensorboard:
            with skip_if_unavailable("TensorBoard", "tensorboard>=2.20,<3"):
                from torch.utils.tensorboard import SummaryWriter

                self.tensorboard = SummaryWriter(args.tensorboard_dir or Path(args.checkpoint_dir, "tensorboard"))

        self.file = None
        if self.speaks and args.log_file:
            with skip_if_unavailable(args.log_file, ""):
                self.file = open(args.log_file, "a", encoding="utf-8")  # noqa: SIM115

    def event(self, name: str, **values: Any) -> None:
        if self.speaks:
            self.print_line({"event": name, **values})

    def metrics(self, step: int, **values: float) -> None:
        if self.speaks:
            numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}
            self.print_line({"step": step, **numbers, "time": round(time.time(), 3)})
        if self.wandb:
            self.wandb.log(values, step=step)
        if self.tensorboard:
            for name, value in values.items():
                self.tensorboard.add_scalar(name, value, step)

    def print_line(self, line: dict[str, Any]) -> None:
        """Print the line, and write it to the file of `--log_file`."""
        text = json.dumps(line)
        if self.file:
            with skip_if_unavailable(self.file.name, ""):
                print(text, file=self.file, flush=True)
        print_line(text)

    def close(self) -> None:
        if self.wandb:
            self.wandb.finish()
        if self.tensorboard:
            self.tensorboard.close()


class Trainer:
    """Model, optimizer and data of one rank. `step` counts the optimizer steps done, over all attempts."""

    name = "train_ddp"
    world_type = World

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        add, on_off = parser.add_argument, argparse.BooleanOptionalAction
        add("--static_graph", action=on_off, default=False)
        add("--find_unused_parameters", action=on_off, default=False)
        add("--gradient_as_bucket_view", action=on_off, default=False)
        add("--bucket_cap_mb", type=at_least(1))

    @staticmethod
    def resolve_options(args: argparse.Namespace) -> None:
        """Set options that follow from others; raise ConfigError where they contradict each other."""

    def __init__(self, args: argparse.Namespace, world: World, report: Report) -> None:
        self.args, self.world, self.report = args, world, report
        self.train_data = Samples(args.train_data_path, args, world)
        self.valid_data = Samples(args.valid_data_path, args, world) if args.valid_data_path else None
        self.dtype = self.choose_dtype()
        torch.manual_seed(args.seed)
        self.model = self.wrap_model(GPT(args))
        groups = make_parameter_groups(self.model, args.weight_decay)
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)
        lower = torch.autocast(world.device.type, self.dtype, enabled=self.dtype != torch.float32)
        self.autocast: contextlib.AbstractContextManager = lower
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=self.dtype == torch.float16)
        self.step = 0
        count = sum(weight.numel() for weight in self.model.parameters())
        about = {"device": str(world.device), "dtype": str(self.dtype).removeprefix("torch."), "parameters": count}
        self.started(**about)

    def started(self, **about: Any) -> None:
        """Report the start, with the effective batch size over all ranks and the learning rate after the warm-up."""
        args, share = self.args, self.train_data.share
        sizes = {name: getattr(args, name) for name in ("batch_size", "gradient_accumulation_steps", "lr_scaling")}
        effective = share.total * args.gradient_accumulation_steps
        sizes |= {"effective_batch_size": effective, "peak_learning_rate": self.peak_learning_rate()}
        self.report.event("started", world_size=self.world.size, **about, **sizes)

    def wrap_model(self, model: GPT) -> nn.Module:
        """Return the model as the optimizer gets it."""
        return model.to(self.world.device)

    def choose_dtype(self) -> torch.dtype:
        if self.args.dtype != "auto":
            return getattr(torch, self.args.dtype)
        if self.world.device.type == "cpu":
            return torch.float32
        ampere = torch.cuda.get_device_capability(self.world.device) >= (8, 0)
        share = self.world.mean(torch.tensor(float(ampere), device=self.world.device))
        return torch.bfloat16 if share == 1 else torch.float16

    def parallel(self) -> nn.Module:
        args, device = self.args, self.world.device
        if not self.world.distributed:
            return self.model
        parallel = DistributedDataParallel(
            self.model,
            device_ids=[device] if device.type == "cuda" else None,
            bucket_cap_mb=args.bucket_cap_mb,
            find_unused_parameters=args.find_unused_parameters,
            gradient_as_bucket_view=args.gradient_as_bucket_view,
            static_graph=args.static_graph,
        )
        # DDP lays out its buckets anew after the first backward pass (after the second, if the graph is static), and
        # the layout decides in which order ranks are summed: without passes for nothing, a resumed run would differ
        # in the last bits. A static graph must also have been seen before no_sync() may be used.
        for _ in range(2 if args.static_graph else 1 if self.step else 0):
            with self.autocast:
                loss = parallel(*self.train_data.draw(self.step, 0))
            loss.backward()
            self.optimizer.zero_grad()
        return parallel

    def peak_learning_rate(self) -> float:
        args, size = self.args, self.train_data.world.size
        return args.learning_rate * {"none": 1, "linear": size, "sqrt": math.sqrt(size)}[args.lr_scaling]

    def learning_rate(self) -> float:
        args, peak = self.args, self.peak_learning_rate()
        if self.step <= args.warmup_steps:
            return peak * self.step / args.warmup_steps
        if args.lr_schedule == "constant":
            return peak
        low = peak / 10 if args.min_lr is None else args.min_lr
        done = (self.step - args.warmup_steps) / (args.total_steps - args.warmup_steps)
        return low + (peak - low) * (1 + math.cos(math.pi * done)) / 2

    def advance(self, parallel: nn.Module) -> torch.Tensor:
        """Do one optimizer step; return this rank's mean loss, weighted by its share of the batch."""
        self.step += 1
        torch.manual_seed(hash_to_int("rank", self.args.seed, self.step, self.world.rank))  # dropout differs by rank
        micro_steps, loss = self.args.gradient_accumulation_steps, torch.zeros((), device=self.world.device)
        parts = micro_steps / self.train_data.share.weight
        for micro_step in range(micro_steps):
            alone: contextlib.AbstractContextManager = contextlib.nullcontext()
            if isinstance(parallel, DistributedDataParallel) and micro_step < micro_steps - 1:
                alone = parallel.no_sync()  # gradients are all-reduced in the last micro step only
            with alone:
                with self.autocast:
                    part = parallel(*self.train_data.draw(self.step, micro_step)) / parts
                self.scaler.scale(part).backward()
            loss += part.detach()
        self.reduce()
        if self.args.grad_clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.args.grad_clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss

    def reduce(self) -> None:
        """Called when each rank has its gradients. On return they must be the means over all ranks; DDP has reduced
        them already."""

    def agree(self, loss: torch.Tensor, stop: bool) -> tuple[torch.Tensor, bool]:
        """Return the mean loss, and whether any rank wants to stop: one all-reduce for both, so that all stop at one
        step."""
        if not self.world.distributed:
            return loss, stop
        loss, stopping = self.world.mean(torch.stack((loss, torch.full_like(loss, stop))))
        return loss, stopping.item() > 0

    @torch.no_grad()
    def validate(self, data: Samples) -> float:
        self.model.eval()
        with self.autocast:
            losses = [self.model(*batch) for batch in data.windows()]
        self.model.train()
        return self.world.mean(torch.stack(losses).mean() * data.share.weight).item()

    def save(self, last: bool, measured: dict[str, float]) -> None:
        """Save a checkpoint on rank 0. A full disk loses a checkpoint and not the run, unless it is the last one."""
        if self.world.rank:
            return
        path = Path(self.args.checkpoint_dir, f"checkpoint_step_{self.step}.pt")
        state = {"step": self.step, "options": vars(self.args)}
        state |= {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "scaler")}
        try:
            size = save_checkpoint(path, state, self.args.keep_checkpoints)
        except (OSError, RuntimeError) as error:
            self.report.event("checkpoint_failed", step=self.step, path=str(path), why=str(error))
            if last:
                raise
        else:
            self.report.event("checkpoint", step=self.step, path=str(path), size_bytes=size, **measured)

    def resume(self) -> None:
        """Load the same checkpoint on every rank; rank 0 decides what `auto` is, others may see other files."""
        path = self.args.resume_from
        if path == "auto":
            path = self.world.share(self.newest_valid() if self.world.rank == 0 else None)
        if not path:
            return
        try:
            state = load_checkpoint(Path(path))
        except CheckpointError as why:
            raise ConfigError(f"cannot resume from {path}: {why}") from None
        self.refuse_another_model(path, state["options"])
        for name in ("model", "optimizer", "scaler"):
            if state[name]:  # no scaler state, unless it was float16
                getattr(self, name).load_state_dict(state[name])
        self.step = state["step"]
        self.report.event("resumed", step=self.step, path=path)

    def refuse_another_model(self, path: str, was: dict[str, Any]) -> None:
        if other := [f"--{name} {was[name]}" for name in MODEL_OPTIONS if was[name] != getattr(self.args, name)]:
            raise ConfigError(f"cannot resume from {path}: its model has {' '.join(other)}")

    def newest_valid(self) -> str | None:
        for _, path in list_checkpoints(Path(self.args.checkpoint_dir)):
            try:
                load_checkpoint(path)
            except CheckpointError as why:
                self.report.event("checkpoint_skipped", path=str(path), why=str(why))
            else:
                return str(path)
        return None

    def run(self, stop_signals: list[int]) -> int:
        """Train to the last step, or to the step at which the ranks agree to stop. Return the exit code."""
        args, first = self.args, self.step + 1
        tokens_per_step = self.train_data.share.total * args.gradient_accumulation_steps * args.block_size
        parallel = self.parallel() if first <= args.total_steps else self.model
        self.train_data.draw_ahead(range(first, args.total_steps + 1))
        logged, clock, stop = self.step, time.perf_counter(), False
        while self.step < args.total_steps and not stop:
            loss = self.advance(parallel)
            time.sleep(args.step_delay)
            loss, stop = self.agree(loss, bool(stop_signals))
            step, measured = self.step, {}
            end = step == args.total_steps or stop
            if step == first or step % args.log_every == 0 or end:
                value, pause = loss.item(), time.perf_counter()
                speed = tokens_per_step * (step - logged) / (pause - clock)
                rate = self.optimizer.param_groups[0]["lr"]
                done = {"tokens_per_s": round(speed, 1), "tflops": compute_tflops(args, speed)}
                self.report.metrics(step, loss=value, lr=rate, **done)
                logged, clock = step, pause
            pause = time.perf_counter()
            due = step == args.total_steps or (args.eval_every and step % args.eval_every == 0)
            if due and self.valid_data:
                measured = {"val_loss": self.validate(self.valid_data)}
                self.report.metrics(step, **measured)
            if end or (args.checkpoint_every and step % args.checkpoint_every == 0):
                self.save(end, measured)
            clock += time.perf_counter() - pause  # tokens_per_s is about training alone
        self.train_data.draw_ahead(range(0))
        stopped = self.step < args.total_steps
        self.report.event("stopped" if stopped else "finished", step=self.step)
        return EXIT_TERMINATED if stopped else 0


def train(args: argparse.Namespace, world: World, kind: type[Trainer]) -> int:
    stop_signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop_signals.append(number))
    gc.disable()  # what is imported and made until training starts stays: looking through it is a third of the time
    world.join(args)
    report = Report(args, world)
    trainer = kind(args, world, report)
    trainer.resume()
    gc.freeze()
    gc.enable()
    code = trainer.run(stop_signals)
    report.close()
    world.leave()
    return code


def main(argv: list[str], kind: type[Trainer] = Trainer) -> int:
    """Run and return the exit code. `kind`: the trainer's class; another one where a framework's recipe imports this
    file."""
    try:
        args = parse_args(argv, kind)
        for path in filter(None, (args.train_data_path, args.valid_data_path)):
            map_tokens(path, args)
        several = args.distributed or (args.world_size or 1) > 1
        if several and "RANK" not in os.environ:
            return spawn_ranks(args, argv, kind)
        return train(args, kind.world_type.from_env(args), kind)
    except ConfigError as why:
        print(f"{kind.name}: {why}", file=sys.stderr, flush=True)
        return 2


def run_and_exit(program: Callable[[list[str]], int], argv: list[str]) -> NoReturn:
    """End this process with the exit code of `program`, without finalising the interpreter: a thread of torch that
    needs the interpreter in that moment aborts the process (seen after 3 of 100 finished runs on gloo)."""
    try:
        code = program(argv)
    except Exception:
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run_and_exit(main, sys.argv[1:])
