"""The reference trainer as real processes, started in every way it promises, stopped, torn and resumed."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fermi.jobs import recipes
from fermi.tokenized_data import TokenizedPair, iter_stdlib_files, tokenize_text
from tests.lazy import lazy_import, module_path
from tests.loss_curves import assert_alike
from tests.platform_process import free_port
from tests.polling import until

pytestmark = pytest.mark.e2e

torch, train_ddp = lazy_import("torch"), lazy_import("fermi.train.train_ddp")
launch_example, examples = lazy_import("examples.test_launch"), lazy_import("examples.train_ddp")
SCRIPT = module_path("fermi.train.train_ddp")
EXAMPLES = SCRIPT.parents[3] / "examples"
"""The same trainer under the names of guides."""
TINY = [
    *("--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=16", "--learning_rate=0.01", "--warmup_steps=2"),
    *("--total_steps=6", "--log_every=1", "--eval_every=3", "--eval_batches=2"),
    *("--checkpoint_every=2", "--keep_checkpoints=2"),
]
LONG = ["--total_steps=100000", "--eval_every=0", "--checkpoint_every=0", "--step_delay=0.02"]


class Run:
    """A started command. Its output goes to a file, so that nothing has to be read for it to go on."""

    started: ClassVar[list["Run"]] = []

    def __init__(self, output: Path, *command: str | Path, **env: object) -> None:
        self.output = output
        path = os.pathsep.join([str(SCRIPT.parents[2]), str(env.pop("PYTHONPATH", ""))])
        ours = {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", **{name: str(value) for name, value in env.items()}}
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                list(map(str, command)), env=os.environ | ours, cwd=output.parent, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        self.started.append(self)

    def wait(self) -> int:
        return self.process.wait(timeout=120)

    def kill(self) -> None:
        """With everything it started, where something still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def text(self) -> str:
        return self.output.read_text()

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines() if line.startswith("{") and line.endswith("}")]

    def metrics(self) -> dict[int, dict[str, float]]:
        """What is reproducible of each step."""
        steps: dict[int, dict[str, float]] = {}
        for record in self.records():
            if "step" in record and "event" not in record:
                kept = {name: record[name] for name in ("loss", "lr", "val_loss") if name in record}
                steps.setdefault(record["step"], {}).update(kept)
        return steps

    def events(self, name: str) -> list[dict[str, Any]]:
        return [record for record in self.records() if record.get("event") == name]

    def until_step(self, step: int) -> None:
        def reached() -> bool:
            assert self.process.poll() is None, self.text
            return max(self.metrics(), default=0) >= step

        until(reached, what=f"step {step}")


def ranks(folder: Path, nodes: list[int], *options: str, script: Path = SCRIPT, **env: object) -> list[Run]:
    """Every rank started by hand, `nodes` giving the processes of each node."""
    port, size, started = free_port(), sum(nodes), []
    for processes in nodes:
        for local_rank in range(processes):
            rank = len(started)
            place = {"RANK": rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": size}
            meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            output = folder / f"rank{rank}.log"
            started.append(Run(output, sys.executable, script, *options, **place, **meet, **env))
    return started


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    while Run.started:
        Run.started.pop().kill()


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TokenizedPair:
    return tokenize_text(iter_stdlib_files(max_bytes=300_000), tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def options(data: TokenizedPair) -> list[str]:
    return [f"--train_data_path={data.train_path}", f"--valid_data_path={data.valid_path}", *TINY]


@pytest.fixture(scope="module")
def single(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One process, six sequences a step, made ready by workers. It has a W&B that writes down what it is told."""
    folder = tmp_path_factory.mktemp("single")
    (folder / "wandb.py").write_text(
        "import json\n"
        "def init(**about): print('wandb', json.dumps(about)); return __import__(__name__)\n"
        "def log(values, step): print('wandb', step, json.dumps(values))\n"
        "def finish(): print('wandb finished')\n"
    )
    wandb = ["--use_wandb", "--wandb_project=mine", "--wandb-run-name=first"]
    module = ["-m", "fermi.train.train_ddp"]
    extras = [*wandb, "--use_tensorboard", "--num_workers=2", "--preload"]
    run = Run(folder / "log", sys.executable, *module, *options, "--batch_size=6", *extras, PYTHONPATH=folder)
    assert run.wait() == 0, run.text
    return run


@pytest.fixture(scope="module")
def uneven(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Nodes of one and of two processes; the same six sequences a step, in two micro steps."""
    accumulating = ["--batch_size=1", "--gradient_accumulation_steps=2", "--distributed"]
    started = ranks(tmp_path_factory.mktemp("uneven"), [1, 2], *options, *accumulating)
    assert [run.wait() for run in started] == [0, 0, 0], [run.text for run in started]
    return started


def test_a_single_process_learns_and_reports_every_step(single: Run) -> None:
    steps = single.metrics()
    assert list(steps) == [1, 2, 3, 4, 5, 6]
    assert steps[6]["val_loss"] < steps[3]["val_loss"] < steps[1]["loss"]
    assert single.text.startswith(
        "[Rank 0] World Size: 1, Local Rank: 0, Master Addr: none\n[Rank 0] Master Port: none, Device: "
    )
    [started] = single.events("started")
    assert started["world_size"] == 1
    assert started["parameters"] > 0
    assert (started["effective_batch_size"], started["peak_learning_rate"]) == (6, 0.01)
    assert single.events("finished") == [{"event": "finished", "step": 6}]


def test_checkpoints_are_reported_and_old_ones_deleted(single: Run) -> None:
    folder = single.output.parent / "checkpoints"
    assert [name for name in checkpoints(folder) if name != "tensorboard"] == [
        "checkpoint_step_4.pt",
        "checkpoint_step_6.pt",
    ]
    announced = single.events("checkpoint")
    assert [event["step"] for event in announced] == [2, 4, 6]
    assert announced[-1]["path"] == "checkpoints/checkpoint_step_6.pt"
    assert announced[-1]["size_bytes"] == (folder / "checkpoint_step_6.pt").stat().st_size
    assert announced[-1]["val_loss"] == single.metrics()[6]["val_loss"]


def test_weights_and_biases_gets_metrics_if_configured(single: Run) -> None:
    told = [line for line in single.text.splitlines() if line.startswith("wandb")]
    assert '"project": "mine", "name": "first"' in told[0]
    assert told[1].startswith('wandb 1 {"loss": ')
    assert told[-1] == "wandb finished"


def test_tensorboard_files_have_every_metric(single: Run) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reader.EventAccumulator(str(single.output.parent / "checkpoints" / "tensorboard")).Reload()
    assert set(found.Tags()["scalars"]) == {"loss", "lr", "tokens_per_s", "tflops", "val_loss"}
    written = {point.step: point.value for point in found.Scalars("loss")}
    assert written == pytest.approx({step: values["loss"] for step, values in single.metrics().items()})


@pytest.mark.parametrize("launcher", ["torch.distributed.run", "torch.distributed.launch", "mp.spawn"])
def test_two_processes_learn_the_same_as_one(launcher: str, single: Run, options: list[str], tmp_path: Path) -> None:
    script = EXAMPLES / ("set_distributed.py" if launcher == "torch.distributed.run" else "train_distributed.py")
    if launcher == "mp.spawn":
        start = [script, "--world_size=2"]
    else:
        start = ["-m", launcher, "--nproc_per_node=2", f"--master_port={free_port()}", script]
    run = Run(tmp_path / "log", sys.executable, *start, *options, "--batch_size=3", "--distributed")
    assert run.wait() == 0, run.text
    for rank in (0, 1):
        assert f"[Rank {rank}] World Size: 2, Local Rank: {rank}, Master Addr: 127.0.0.1" in run.text
    assert_alike(run.metrics(), single.metrics())


def test_uneven_nodes_and_accumulated_gradients_learn_the_same_as_one_process(single: Run, uneven: list[Run]) -> None:
    for run, local_rank in zip(uneven, (0, 0, 1), strict=True):
        assert f"World Size: 3, Local Rank: {local_rank}, Master Addr: 127.0.0.1" in run.text
    assert uneven[1].records() == uneven[2].records() == []
    assert_alike(uneven[0].metrics(), single.metrics())


def test_a_rank_whose_peer_never_connects_times_out(options: list[str], tmp_path: Path) -> None:
    """Without one, gloo waits for half an hour: longer than the run is waited for here."""
    place = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    run = Run(tmp_path / "log", sys.executable, SCRIPT, *options, **place, FERMI_TIMEOUT_SECONDS=2)
    assert run.wait() == 1, run.text
    assert "Timed out" in run.text


def test_a_resumed_run_skips_incomplete_checkpoints_and_is_bitwise_equal(
    uneven: list[Run], options: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    shutil.copytree(uneven[0].output.parent / "checkpoints", folder)
    whole = (folder / "checkpoint_step_6.pt").read_bytes()
    middle = len(whole) // 2
    (folder / "checkpoint_step_6.pt").write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    (folder / "checkpoint_step_5.pt").write_bytes(whole[:middle])
    (folder / "checkpoint_step_5.pt.partial").write_bytes(whole[:100])

    accumulating = ["--batch_size=1", "--gradient_accumulation_steps=2"]
    resumed = ranks(tmp_path, [3], *options, *accumulating, "--resume_from=auto")
    assert [run.wait() for run in resumed] == [0, 0, 0], resumed[0].text
    skipped = [event["path"] for event in resumed[0].events("checkpoint_skipped")]
    assert skipped == ["checkpoints/checkpoint_step_6.pt", "checkpoints/checkpoint_step_5.pt"]
    assert resumed[0].events("resumed") == [{"event": "resumed", "step": 4, "path": "checkpoints/checkpoint_step_4.pt"}]
    before = uneven[0].metrics()
    assert resumed[0].metrics() == {step: before[step] for step in (5, 6)}
    assert "checkpoint_step_5.pt.partial" not in checkpoints(folder)


def test_a_complete_run_says_so_and_platform_variables_replace_options(
    single: Run, data: TokenizedPair, tmp_path: Path
) -> None:
    hyperparameters = {
        "totalSteps": 6,
        "layers": 1,
        "heads": 2,
        "hiddenSize": 16,
        "sequenceLength": 16,
        "useWandb": False,
    }
    env = {
        "FERMI_TRAIN_DATA": data.train_path,
        "FERMI_VALID_DATA": data.valid_path,
        "FERMI_CHECKPOINT_DIR": single.output.parent / "checkpoints",
        "FERMI_RESUME_FROM": "auto",
        "FERMI_BACKEND": "gloo",
        "FERMI_HYPERPARAMETERS": json.dumps(hyperparameters),
    }
    run = Run(tmp_path / "log", sys.executable, SCRIPT, **env)
    assert run.wait() == 0, run.text
    assert [event["step"] for event in run.events("resumed")] == [6]
    assert run.events("finished") == [{"event": "finished", "step": 6}]
    assert run.metrics() == {}


def test_without_a_valid_checkpoint_auto_starts_over_and_an_explicit_path_is_refused(
    options: list[str], tmp_path: Path
) -> None:
    torn = tmp_path / "checkpoints" / "checkpoint_step_2.pt"
    torn.parent.mkdir()
    torn.write_bytes(b"torn")
    torch.save({"step": 3, "code": Path()}, torn.with_name("checkpoint_step_3.pt"))  # would run code when loaded
    afresh = Run(tmp_path / "log", sys.executable, SCRIPT, *options, "--total_steps=1", "--resume_from=auto")
    refused = Run(tmp_path / "other", sys.executable, SCRIPT, *options, f"--resume_from={torn}")
    assert afresh.wait() == 0, afresh.text
    assert list(afresh.metrics()) == [1]
    assert len(afresh.events("checkpoint_skipped")) == 2
    assert refused.wait() == 2
    assert f"train_ddp: cannot resume from {torn}: " in refused.text
    assert "Traceback" not in refused.text


def test_sigterm_saves_exits_with_143_and_the_run_can_resume(options: list[str], tmp_path: Path) -> None:
    """The loading worker is told, too, as by Slurm or a terminal, and must not end before the rank is done."""
    run = Run(tmp_path / "log", sys.executable, SCRIPT, *options, *LONG, "--dtype=float16", "--num_workers=1")
    run.until_step(3)
    os.killpg(run.process.pid, signal.SIGTERM)
    assert run.wait() == 143, run.text
    with pytest.raises(ProcessLookupError):
        os.killpg(run.process.pid, 0)
    [stopped], [saved] = run.events("stopped"), run.events("checkpoint")
    assert stopped["step"] == saved["step"] == max(run.metrics())
    assert checkpoints(tmp_path / "checkpoints") == [f"checkpoint_step_{stopped['step']}.pt"]
    last = stopped["step"] + 1
    again = Run(tmp_path / "again", sys.executable, SCRIPT, *options, f"--total_steps={last}", "--resume_from=auto")
    assert again.wait() == 0, again.text
    assert list(again.metrics()) == [last]


def test_a_killed_rank_leaves_no_loader_process(options: list[str], tmp_path: Path) -> None:
    run = Run(tmp_path / "log", sys.executable, SCRIPT, *options, *LONG, "--num_workers=2")
    run.until_step(1)
    pid = run.process.pid
    workers = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    assert len(workers) == 2
    run.process.kill()
    until(lambda: not any(Path("/proc", worker).exists() for worker in workers), what="the workers' end")


def test_sigterm_to_one_rank_stops_all_at_one_step(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "wandb.py").write_text("raise ImportError(\"No module named 'wandb'\")")
    scaled = ["--lr_scaling=linear", "--lr_schedule=constant", "--dtype=bfloat16", "--static_graph", "--use_wandb"]
    started = ranks(tmp_path, [2], *options, *LONG, *scaled, PYTHONPATH=tmp_path)
    started[0].until_step(3)
    started[1].process.terminate()
    assert [run.wait() for run in started] == [143, 143], [run.text for run in started]
    assert [event["step"] for event in started[0].events("checkpoint")] == [max(started[0].metrics())]

    rates = [values["lr"] for values in started[0].metrics().values()]
    assert rates[:3] == pytest.approx([0.01, 0.02, 0.02])
    missing = "Weights & Biases cannot be used (No module named 'wandb')"
    complaint = f"{missing}: install it with pip install 'wandb>=0.30,<1'"
    [about] = started[0].events("started")
    assert (about["effective_batch_size"], about["peak_learning_rate"]) == (16, 0.02)
    assert (complaint in started[0].text, complaint in started[1].text) == (True, False)


def test_sigterm_to_the_process_that_spawned_the_ranks_reaches_them(options: list[str], tmp_path: Path) -> None:
    run = Run(tmp_path / "log", sys.executable, SCRIPT, *options, *LONG, "--distributed", "--world_size=2")
    run.until_step(2)
    run.process.terminate()
    assert run.wait() == 143, run.text
    assert len(run.events("checkpoint")) == 1


def test_it_runs_as_main_in_processes_forked_after_torch_was_imported(
    options: list[str], single: Run, tmp_path: Path
) -> None:
    parent = tmp_path / "parent.py"
    parent.write_text(f"""
import os, sys, types
import torch, torch._dynamo
import fermi.train.train_ddp
children = []
for rank in range(2):
    if not (child := os.fork()):
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__file__, sys.argv = {str(SCRIPT)!r}, [{str(SCRIPT)!r}, *{options!r}, "--batch_size=3"]
        try:
            exec(compile(open(main.__file__).read(), main.__file__, "exec"), main.__dict__)
        except SystemExit as ended:
            sys.stdout.flush()
            os._exit(ended.code)
        os._exit(99)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
""")
    run = Run(tmp_path / "log", sys.executable, parent, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    assert run.wait() == 0, run.text
    assert_alike(run.metrics(), single.metrics())


def test_a_failed_checkpoint_ends_the_run_only_at_the_last_step(options: list[str], tmp_path: Path) -> None:
    limited = f"ulimit -f 64; exec {sys.executable} {SCRIPT} {' '.join(options)} --total_steps=3"
    run = Run(tmp_path / "log", "bash", "-c", limited)
    assert run.wait() == 1, run.text
    assert [event["step"] for event in run.events("checkpoint_failed")] == [2, 3]
    assert list(run.metrics()) == [1, 2, 3]
    assert checkpoints(tmp_path / "checkpoints") == []


def test_the_script_in_the_documentation_trains_stops_and_resumes(root: Path, tmp_path: Path) -> None:
    [text] = re.findall("```python\n(.*?)```", (root / "docs" / "training-script.md").read_text(), re.DOTALL)
    script = tmp_path / "script.py"
    script.write_text(text)
    endless = {"FERMI_HYPERPARAMETERS": json.dumps({"totalSteps": 10**9})}
    started = ranks(tmp_path, [2], script=script, **endless)
    started[0].until_step(3)
    started[1].process.terminate()
    assert [run.wait() for run in started] == [143, 143], [run.text for run in started]
    saved = started[0].events("checkpoint")[-1]
    assert saved["step"] == max(started[0].metrics())

    again = {"FERMI_RESUME_FROM": saved["path"], "FERMI_HYPERPARAMETERS": json.dumps({"totalSteps": saved["step"] + 2})}
    run = Run(tmp_path / "again", sys.executable, script, **again)
    assert run.wait() == 0, run.text
    assert list(run.metrics()) == [saved["step"] + 1, saved["step"] + 2]


def test_every_hyperparameter_of_the_recipe_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, parameter in recipes.GPT.items():
        value = parameter.choices[0] if parameter.choices else parameter.kind(4)
        monkeypatch.setenv("FERMI_HYPERPARAMETERS", json.dumps({name: value}))
        args = train_ddp.parse_args(["--train_data_path=train.bin"])
        assert getattr(args, parameter.flag) == value


MEETING = ["WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=1"]
REFUSED = {
    "no data": ([], "--train_data_path is missing"),
    "data that is not there": (["--train_data_path=/nowhere.bin"], "/nowhere.bin cannot be read: No such file"),
    "a folder as data": (["--train_data_path=/"], "/ cannot be read"),
    "data cut in the middle of a token": (["--train_data_path={odd}"], "not a whole number of uint16 tokens"),
    "too little data": (["--train_data_path={small}"], "5 tokens: too few for --block_size 64"),
    "gpt-2 s tokens": (
        ["--train_data_path={small}", "--block_size=2"],
        "has the token 300: beyond --vocab_size 256; pass --vocab_size 50304 if these are GPT-2's tokens, else 301",
    ),
    "tokens beyond the vocabulary": (
        ["--train_data_path={large}", "--block_size=2"],
        "has the token 65535: beyond --vocab_size 256; pass --vocab_size 65536 at least",
    ),
    "heads that do not divide the width": (["--n_embd=10", "--n_head=3"], "--n_embd 10 is not divisible by --n_head 3"),
    "an unknown option": (["--batchsize=3"], "unrecognized arguments: --batchsize=3"),
    "a batch of nothing": (["--batch-size=0"], "argument --batch_size: 0 is less than 1"),
    "a word for a number": (["--total_steps=many"], "invalid number value: 'many'"),
    "an unknown dtype": (["--dtype=int8"], "argument --dtype: invalid choice: 'int8'"),
    "nccl without a GPU": (["--train_data_path={good}", "--backend=nccl"], "--backend nccl needs a GPU"),
    "half a launcher": (["--train_data_path={good}", "RANK=1"], "RANK is set, but WORLD_SIZE and MASTER_ADDR"),
    "a rank beyond the world": (["--train_data_path={good}", *MEETING, "RANK=2"], "RANK is 2, but must be below"),
    "a world size that is not the launcher's": (
        ["--train_data_path={good}", *MEETING, "RANK=0", "--world_size=4"],
        "--world_size is 4, but the launcher started 2 processes",
    ),
}


@pytest.mark.parametrize(("words", "complaint"), REFUSED.values(), ids=REFUSED)
def test_invalid_options_are_one_line_and_exit_code_2(
    words: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = {"odd": b"\1\0\2", "small": b"\x2c\1" * 5, "large": b"\xff" * 10, "good": b"\1\0" * 100}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    argv = []
    for word in words:
        word = word.format(**{name: tmp_path / name for name in files})
        if word.startswith("--"):
            argv.append(word)
        else:
            monkeypatch.setenv(*word.split("="))
    assert train_ddp.main(argv) == 2
    said = capsys.readouterr()
    assert said.err.startswith("train_ddp: ")
    assert said.err.count("\n") == 1
    assert complaint in said.err
    assert said.out == ""


def test_an_error_shows_no_traceback_in_a_real_process(tmp_path: Path) -> None:
    run = Run(tmp_path / "log", sys.executable, SCRIPT, "--distributed", "--world_size=2")
    assert run.wait() == 2
    assert run.text == "train_ddp: --train_data_path is missing\n"


def test_the_stopped_example_resumes_with_equal_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(folder: str, stop_at: int | None = None) -> float:
        monkeypatch.setenv("FERMI_CHECKPOINT_DIR", str(tmp_path / folder))
        torch.manual_seed(0)
        model, seen = torch.nn.Linear(100, 10), []

        def forwarded(*_: object) -> None:
            seen.append(1)
            if len(seen) == stop_at:
                os.kill(os.getpid(), signal.SIGTERM)

        model.register_forward_hook(forwarded)
        return examples.train_ddp(model=model, input_size=100, output_size=10, batch_size=256, epochs=2)

    before = signal.getsignal(signal.SIGTERM)
    try:
        whole = train("whole")
        with pytest.raises(SystemExit) as ended:
            train("stopped", stop_at=13)
        monkeypatch.setenv("FERMI_RESUME_FROM", "auto")
        capsys.readouterr()
        assert train("stopped") == whole
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 143
    [resumed] = (json.loads(line) for line in capsys.readouterr().out.splitlines() if '"resumed"' in line)
    assert 8 < resumed["step"] < 16, "in the second of two epochs of 8 steps"


def test_the_example_refuses_a_model_that_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        examples.train_ddp(model=torch.nn.Linear(100, 7), input_size=100, output_size=10)
    signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 2
    assert "output_size is 10" in capsys.readouterr().err


def test_the_launch_test_names_contradictory_settings() -> None:
    fine = [(0, 0, "0", "gn6", "cpu"), (1, 1, "0", "gn6", "cpu"), (2, 0, "1", "gn7", "cpu")]
    assert list(launch_example.contradictions(fine)) == []
    twice = [fine[0], fine[1], (2, 1, "0", "gn6", "cpu")]
    assert list(launch_example.contradictions(twice)) == ["the local ranks on node 0 are [0, 1, 1]"]
    assert next(launch_example.contradictions([fine[0], fine[0]])) == "the ranks are [0, 0]"
