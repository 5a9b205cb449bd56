"""What of the JAX trainer can be looked at without starting processes."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from fermi.launch import recipes
from fermi.train import common, gpt_jax, train_ddp, train_jax

SMALL = ["--train_data_path=train.bin", "--n_layer=2", "--n_head=2", "--n_embd=12", "--block_size=5"]


def test_initial_weights_are_torch_s_from_the_same_seed():
    for seed in (0, 1337, 2**40 + 5):
        args = train_ddp.parse([*SMALL, f"--seed={seed}"])
        torch.manual_seed(seed)
        theirs = train_ddp.GPT(args).state_dict()
        ours = gpt_jax.initial_weights(args)
        assert list(ours) == list(theirs)
        for name, weight in theirs.items():
            np.testing.assert_allclose(ours[name], weight.numpy(), atol=1e-6, rtol=0)


def test_an_update_is_torch_s_adamw_after_torch_s_clipping():
    args = train_ddp.parse([*SMALL, "--weight_decay=0.1"])
    weights = gpt_jax.initial_weights(args)
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
        corrections = gpt_jax.bias_corrections(step)
        clipped = gpt_jax.clip(gradients, 1.0)
        weights, means, squares = gpt_jax.adamw(weights, means, squares, clipped, 1e-2, corrections, 0.1)
    for name, weight in theirs.items():
        np.testing.assert_allclose(weights[name], weight.detach().numpy(), atol=2e-6)


def test_data_and_learning_rate_are_those_of_train_ddp(tmp_path):
    path = tmp_path / "train.bin"
    path.write_bytes(bytes(range(0, 256, 2)) * 40)
    words = [f"--train_data_path={path}", "--block_size=8", "--vocab_size=65536", "--batch_size=2", "--eval_batches=2"]
    words += ["--gradient_accumulation_steps=2", "--total_steps=30", "--lr_scaling=sqrt"]
    ddp_args, args = train_ddp.parse(words), train_jax.parse(words)
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
        assert common.learning_rate(args, trainer.step, 3) == trainer.learning_rate()


def test_options_and_their_defaults_are_those_of_train_ddp(monkeypatch):
    ddp_only = {"distributed", "world_size", "backend", "tf32", "dropout", "timeout_seconds", "local_batch_size"}
    ddp_only |= {"static_graph", "find_unused_parameters", "gradient_as_bucket_view", "bucket_cap_mb"}
    theirs = {name: value for name, value in vars(train_ddp.parse(SMALL)).items() if name not in ddp_only}
    ours = vars(train_jax.parse(SMALL))
    assert {name: ours[name] for name in theirs if name != "local_rank"} == {
        name: value for name, value in theirs.items() if name != "local_rank"
    }
    assert ours["batch_size"] == recipes.DEFAULT_BATCH_SIZE
    for name, parameter in recipes.GPT.items():
        value = parameter.choices[0] if parameter.choices else parameter.kind(4)
        monkeypatch.setenv("FERMI_HYPERPARAMETERS", json.dumps({name: value}))
        assert getattr(train_jax.parse(["--train_data_path=train.bin"]), parameter.flag) == value


def test_a_checkpoint_comes_back_as_it_was_and_runs_no_code(tmp_path):
    one = {"a.weight": np.array([[1.5, math.pi]], np.float32), "a.bias": np.array([np.nan], np.float32)}
    state = train_jax.State(one, {k: v + 1 for k, v in one.items()}, {k: v + 2 for k, v in one.items()})
    path = train_jax.save_checkpoint(tmp_path, 3, {"n_embd": 4}, state, keep=1)
    step, options, loaded = train_jax.load_checkpoint(path)
    assert (step, options) == (3, {"n_embd": 4})
    for old, new in zip(state, loaded, strict=True):
        assert list(old) == list(new)
        assert all(old[name].tobytes() == new[name].tobytes() for name in old)
    np.savez(tmp_path / "code.npz", about=np.array([Path()], dtype=object))
    for bad in (tmp_path / "code.npz", tmp_path / "absent.npz"):
        with pytest.raises(common.Unusable):
            train_jax.load_checkpoint(bad)


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
def test_a_process_finds_its_place_from_flags_variables_or_slurm(words, variables, world, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert train_jax.World.find(train_jax.parse([*SMALL, *words])) == world


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
    "a batch that cannot be shared": (
        ["--train_data_path={good}", *FLAGS, "--batch_is_global", "--batch_size=3"],
        "--batch_size 3 cannot be shared out among 2 processes",
    ),
}


@pytest.mark.parametrize(("words", "complaint"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_one_line_and_exit_code_2(words, complaint, tmp_path, monkeypatch, capsys):
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
