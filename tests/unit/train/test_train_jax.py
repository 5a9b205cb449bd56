"""What of the JAX trainer can be looked at without starting processes."""

import io
import json
import math
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from fermi.jobs import recipes
from fermi.train import common, terminal
from tests.lazy import lazy_import

torch, train_ddp = lazy_import("torch"), lazy_import("fermi.train.train_ddp")
train_jax = lazy_import("fermi.train.train_jax")
gpt_jax, mesh_jax, world_jax = (lazy_import(f"fermi.train.{name}_jax") for name in ("gpt", "mesh", "world"))

SMALL = ["--train_data_path=train.bin", "--n_layer=2", "--n_head=2", "--n_embd=12", "--block_size=5"]


@pytest.fixture(scope="module", autouse=True)
def imported_trainers() -> None:
    """Import JAX before a test sets variables that it reads on import."""
    assert train_jax.main
    assert world_jax.JaxWorld


def test_without_jax_the_install_command_is_shown():
    script = (
        "import runpy, sys; sys.modules['jax'] = None; runpy.run_module('fermi.train.train_jax', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", script, *SMALL], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install jax" in done.stderr
    assert "Traceback" not in done.stderr


def test_initial_weights_equal_torchs_for_the_same_seed():
    for seed in (0, 1337, 2**40 + 5):
        args = train_ddp.parse_args([*SMALL, f"--seed={seed}"])
        torch.manual_seed(seed)
        theirs = train_ddp.GPT(args).state_dict()
        ours = gpt_jax.make_initial_weights(args)
        assert list(ours) == list(theirs)
        for name, weight in theirs.items():
            np.testing.assert_allclose(ours[name], weight.numpy(), atol=1e-6, rtol=0)


def test_an_update_equals_torchs_clipping_and_adamw():
    args = train_ddp.parse_args([*SMALL, "--weight_decay=0.1"])
    weights = gpt_jax.make_initial_weights(args)
    theirs = {name: torch.nn.Parameter(torch.from_numpy(weight.copy())) for name, weight in weights.items()}
    groups = [
        {"params": [weight for weight in theirs.values() if weight.dim() >= 2], "weight_decay": 0.1},
        {"params": [weight for weight in theirs.values() if weight.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=gpt_jax.BETAS)
    means = squares = {name: np.zeros_like(weight) for name, weight in weights.items()}
    random = np.random.default_rng(0)
    for step in (1, 2, 3):
        gradients = {name: random.normal(size=w.shape).astype(np.float32) for name, w in weights.items()}
        for name, weight in theirs.items():
            weight.grad = torch.from_numpy(gradients[name].copy())
        torch.nn.utils.clip_grad_norm_(theirs.values(), 1.0)
        optimizer.step()
        corrections = gpt_jax.compute_bias_corrections(step)
        clipped = gpt_jax.clip_gradients(gradients, gpt_jax.sum_squares(gradients) ** 0.5, 1.0)
        weights, means, squares = gpt_jax.apply_adamw(weights, means, squares, clipped, 1e-2, corrections, 0.1)
    for name, weight in theirs.items():
        np.testing.assert_allclose(weights[name], weight.detach().numpy(), atol=2e-6)


def test_data_and_learning_rate_equal_train_ddp(tmp_path):
    path = tmp_path / "train.bin"
    path.write_bytes(bytes(range(0, 256, 2)) * 40)
    words = [f"--train_data_path={path}", "--block_size=8", "--vocab_size=65536", "--batch_size=2", "--eval_batches=2"]
    words += ["--gradient_accumulation_steps=2", "--total_steps=30", "--lr_scaling=sqrt"]
    ddp_args, args = train_ddp.parse_args(words), train_jax.parse_args(words)
    for rank in range(3):
        world = train_ddp.World(rank, 0, 3, torch.device("cpu"), distributed=True)
        theirs, ours = train_ddp.Samples(str(path), ddp_args, world), common.Samples(str(path), args, rank, 3)
        for step, micro_step in ((1, 0), (1, 1), (9, 1)):
            tokens, targets = theirs.draw(step, micro_step)
            rows = ours.draw(step, micro_step)
            assert (rows[:, :-1] == tokens.numpy()).all()
            assert (rows[:, 1:] == targets.numpy()).all()
        for (tokens, _), rows in zip(theirs.windows(), ours.windows(), strict=True):
            assert (rows[:, :-1] == tokens.numpy()).all()
    trainer = train_ddp.Trainer.__new__(train_ddp.Trainer)
    trainer.args, trainer.train_data = ddp_args, theirs
    for trainer.step in range(1, 31):
        assert common.compute_learning_rate(args, trainer.step, 3) == trainer.learning_rate()


def test_options_and_defaults_equal_train_ddp(monkeypatch):
    ddp_only = {"distributed", "world_size", "backend", "tf32", "dropout", "timeout_seconds", "local_batch_size"}
    ddp_only |= {"static_graph", "find_unused_parameters", "gradient_as_bucket_view", "bucket_cap_mb"}
    theirs = {name: value for name, value in vars(train_ddp.parse_args(SMALL)).items() if name not in ddp_only}
    ours = vars(train_jax.parse_args(SMALL))
    assert {name: ours[name] for name in theirs if name != "local_rank"} == {
        name: value for name, value in theirs.items() if name != "local_rank"
    }
    assert ours["batch_size"] == recipes.DEFAULT_BATCH_SIZE
    for name, parameter in recipes.GPT.items():
        value = parameter.choices[0] if parameter.choices else parameter.kind(4)
        monkeypatch.setenv("FERMI_HYPERPARAMETERS", json.dumps({name: value}))
        assert getattr(train_jax.parse_args(["--train_data_path=train.bin"]), parameter.flag) == value


def test_tensorboard_gets_metrics_without_torch(tmp_path, capsys):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    words = [*SMALL, f"--checkpoint_dir={tmp_path}", "--use_tensorboard", "--batch_size=2"]
    args = train_jax.parse_args(
        [*words, "--gradient_accumulation_steps=3", "--lr_scaling=linear", "--learning_rate=0.5"]
    )
    for rank in (0, 1):
        report = common.Report(args, rank)
        report.event("started", **common.describe_batch(args, 4))
        report.metrics(3, loss=2.5)
        report.close()
    found = reader.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert found.SummaryMetadata("loss").plugin_data.plugin_name == "scalars"
    numbers = pytest.importorskip("tensorboard.util.tensor_util").make_ndarray
    assert [(point.step, numbers(point.tensor_proto)) for point in found.Tensors("loss")] == [(3, 2.5)]
    started, _ = capsys.readouterr().out.splitlines()
    assert json.loads(started).items() >= {"effective_batch_size": 24, "peak_learning_rate": 2.0}.items()


def test_a_checkpoint_round_trips_and_runs_no_code(tmp_path):
    one = {"a.weight": np.array([[1.5, math.pi]], np.float32), "a.bias": np.array([np.nan], np.float32)}
    state = train_jax.TrainState(one, {k: v + 1 for k, v in one.items()}, {k: v + 2 for k, v in one.items()})
    arrays = {f"{kind}/{name}": array for kind, tree in state._asdict().items() for name, array in tree.items()}
    path = train_jax.save_checkpoint(tmp_path, 3, {"n_embd": 4}, arrays.items(), keep=1)
    assert train_jax.read_checkpoint_header(path) == (3, {"n_embd": 4})
    loaded = train_jax.load_state(path, lambda _, array: array)
    for old, new in zip(state, loaded, strict=True):
        assert list(old) == list(new)
        assert all(old[name].tobytes() == new[name].tobytes() for name in old)
    np.savez(tmp_path / "code.npz", about=np.array([Path()], dtype=object))
    half = [(name, array) for name, array in arrays.items() if name.startswith("weights/")]
    others = train_jax.save_checkpoint(tmp_path, 4, {}, half, keep=2)
    for bad in (tmp_path / "code.npz", tmp_path / "absent.npz", others):
        with pytest.raises(common.CheckpointError):
            train_jax.read_checkpoint_header(bad)


def test_a_weight_is_split_along_its_longest_divisible_axis():
    shapes = [((6, 4), 2), ((4, 6), 2), ((6, 5), 5), ((7, 5), 2), ((3,), 3), ((1,), 2)]
    assert [mesh_jax.find_longest_axis(shape, parts) for shape, parts in shapes] == [0, 1, 1, None, 0, None]


def test_batches_arrive_in_order_with_any_loader():
    def prepare(step):
        made.append((step, threading.current_thread() is threading.main_thread()))
        return step * step

    for ahead in (0, 1, 3, 50):
        made: list[tuple[int, bool]] = []
        coming = common.prefetch_batches(prepare, range(2, 9), ahead)
        assert next(coming) == 4
        assert list(coming) == [step * step for step in range(3, 9)]
        assert made == [(step, not ahead) for step in range(2, 9)]
    coming = common.prefetch_batches(prepare, iter(range(10**9)), 2)
    next(coming)
    coming.close()  # ends the thread
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]
    with pytest.raises(ZeroDivisionError):
        list(common.prefetch_batches(lambda step: 1 // step, range(2), 2))


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def reconfigure(self, **_):
        pass


def test_in_a_terminal_lines_are_readable_and_the_bar_stays_below(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(terminal, "MAX_UPDATES_PER_SECOND", float("inf"))
    report = terminal.make_report(train_jax.parse_args([*SMALL, "--total_steps=2"]), 0)
    report.event("started", world_size=1)
    report.progress(1)
    report.metrics(1, loss=2.5)
    report.progress(2)
    report.event("finished", step=2)
    shown = [line.rpartition(terminal.CLEAR_LINE)[2] for line in sys.stdout.getvalue().split("\n")]
    assert shown[:3] == ["started world_size=1", "Step 1: loss=2.5", "Step 2: finished"]
    assert shown[3].startswith("100%|██████████████████████████████| 2/2 [00:00<")
    assert shown[4:] == [""]
    quiet = terminal.make_report(train_jax.parse_args(SMALL), 1)
    quiet.progress(1)
    quiet.event("started")
    assert sys.stdout.getvalue().count("\n") == 4


def test_without_a_terminal_lines_are_json_without_a_bar(capsys):
    report = terminal.make_report(train_jax.parse_args(SMALL), 0)
    report.progress(1)
    report.metrics(1, loss=math.inf)
    line = json.loads(capsys.readouterr().out)
    assert (line["step"], line["loss"]) == (1, None)


def test_a_bar_is_never_wider_than_its_terminal():
    assert terminal.draw_bar(135, 300, 131, 12.0, 60) == " 45%|███████▋         | 135/300 [00:12<00:15, 10.9 steps/s]"
    assert terminal.draw_bar(1, 10**5, 0, 0.0, 200).endswith("| 1/100000 [00:00<?, 0.0 steps/s]")
    assert terminal.draw_bar(3, 4, 1, 7200.0, 200).endswith("| 3/4 [2:00:00<2:00:00, 0.0 steps/s]")
    assert all(len(terminal.draw_bar(7, 9, 3, 1.0, columns)) < max(columns, 1) for columns in range(100))


@pytest.mark.parametrize(
    ("name", "listed", "refused"),
    [
        ("gpu", "", False), ("gpu", "cuda,cpu", False), ("GPU", "rocm", False), ("cuda", "gpu", False),
        ("cpu", "cuda,cpu", False), ("", "cpu", False), ("gpu", "cpu", True), ("cpu", "cuda", True),
        ("cuda", "rocm", True),
    ],
)  # fmt: skip
def test_contradictory_jax_platform_variables_are_refused(name, listed, refused, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORM_NAME", name)
    monkeypatch.setenv("JAX_PLATFORMS", listed)
    with pytest.raises(common.ConfigError, match=f"{name.lower()}, but") if refused else nullcontext():
        world_jax.choose_platform()


FLAGS = ["--coordinator_address=gn6:1", "--num_processes=2", "--process_id=1"]
MEETING = {"MASTER_ADDR": "gn6", "MASTER_PORT": "1"}
STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "gn6",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
}


@pytest.mark.parametrize(
    ("words", "variables", "world"),
    [
        ([], {}, (0, 0, 1, None, "none")),
        (FLAGS, {}, (1, 0, 2, "gn6:1", "flags")),
        (FLAGS, {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "2", **MEETING}, (1, 2, 2, "gn6:1", "flags")),
        (FLAGS[1:], {"JAX_COORDINATOR_ADDRESS": "gn7:2"}, (1, 0, 2, "gn7:2", "flags")),
        ([], {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "2", **MEETING}, (5, 2, 8, "gn6:1", "variables")),
        ([], {"RANK": "0", "WORLD_SIZE": "2", "JAX_COORDINATOR_ADDRESS": "gn7:2", **MEETING},
         (0, 0, 2, "gn7:2", "variables")),
        ([], STEP, (3, 1, 4, None, "slurm")),
        ([], {**STEP, **MEETING}, (3, 1, 4, "gn6:1", "slurm")),
        ([], {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, (0, 0, 1, None, "none")),
    ],
)  # fmt: skip
def test_a_process_finds_its_rank_from_flags_variables_or_slurm(words, variables, world, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert world_jax.JaxWorld.find(train_jax.parse_args([*SMALL, *words])) == world


REFUSED = {
    "no data": ([], "--train_data_path is missing"),
    "data that is not there": (["--train_data_path=/nowhere.bin"], "/nowhere.bin cannot be read: No such file"),
    "tokens beyond the vocabulary": (["--train_data_path={small}", "--block_size=2"], "has the token 300: beyond"),
    "float16": (["--dtype=float16"], "argument --dtype: invalid choice: 'float16'"),
    "half of the flags": (["--train_data_path={good}", "--process_id=1"], "the coordinator's address and the number"),
    "half a launcher": (["--train_data_path={good}", "RANK=1", "WORLD_SIZE=2"], "must be given by variables, too"),
    "an id beyond the processes": (
        ["--train_data_path={good}", "--coordinator_address=gn6:1", "--num_processes=2", "--process_id=2"],
        "the process id is 2, but must be below the number of processes, 2",
    ),
    "an address without a port": (
        ["--train_data_path={good}", "--coordinator_address=gn6", "--num_processes=2", "--process_id=1"],
        "the coordinator's address is gn6, but must be host:port",
    ),
    "shards that do not divide the processes": (
        ["--train_data_path={good}", *FLAGS, "--fsdp_parallel=3"],
        "--fsdp_parallel 3 does not divide the 2 processes",
    ),
    "a batch that cannot be shared": (
        ["--train_data_path={good}", *FLAGS, "--batch_is_global", "--batch_size=3"],
        "--batch_size 3 cannot be shared out among 2 processes",
    ),
}


@pytest.mark.parametrize(("words", "complaint"), REFUSED.values(), ids=REFUSED)
def test_invalid_options_are_one_line_and_exit_code_2(words, complaint, tmp_path, monkeypatch, capsys):
    for name, content in {"small": b"\x2c\1" * 5, "good": b"\1\0" * 100}.items():
        (tmp_path / name).write_bytes(content)
    argv = []
    for word in words:
        word = word.format(small=tmp_path / "small", good=tmp_path / "good")
        if word.startswith("--"):
            argv.append(word)
        else:
            monkeypatch.setenv(*word.split("="))
    assert train_jax.main(argv) == 2
    said = capsys.readouterr()
    assert said.err.startswith("train_jax: ")
    assert said.err.count("\n") == 1
    assert complaint in said.err
