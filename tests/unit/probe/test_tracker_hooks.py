"""Points, parameters and files of what scripts log to experiment trackers: one script for each manner.

Trackers that are not installed are stand-ins of their published interfaces (`tests/fakes/trackers`, which name versions
and files). If FERMI_TRACKERS_PYTHON is an interpreter that has the real ones, all scripts run against those.
"""

import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fermi.probe import setup, wandb_hooks
from fermi.runner import rank

STAND_INS = Path(__file__).parents[2] / "fakes" / "trackers"
REAL_PYTHON = os.environ.get("FERMI_TRACKERS_PYTHON", "")


class Found:
    """What a script has recorded. `points`: source, step and values, in their order."""

    def __init__(self, records: list[dict[str, Any]], output: Path, log: str) -> None:
        self.log, self.output, self.records = log, output, records
        self.points = [(one["source"], one["step"], one["values"]) for one in records if "values" in one]
        self.parameters: dict[str, Any] = {}
        for one in records:
            self.parameters |= one.get("parameters", {})
        media = [(one["media"], one["step"]) for one in records if "media" in one]
        self.media = [(one["kind"], one["name"], step) for one, step in media]
        self.files = [output / one["path"] for one, _ in media]


class Run:
    """Runs a script as a rank to its end."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output, self.packages = folder / "code", folder / "output", folder / "packages"
        for one in (self.folder, self.output, self.packages):
            one.mkdir()
        self.given, self.log = setup.create_rank_files(), folder / "log"

    def __call__(self, code: str, *trackers: str, **env: str) -> Found:
        (self.folder / "train.py").write_text(textwrap.dedent(code))
        python = REAL_PYTHON or sys.executable
        for tracker in trackers if python != REAL_PYTHON else ():
            self._install(tracker)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "MLFLOW_"))}
        variables = {
            **clean, "RANK": "0", "HOME": str(self.folder), "FERMI_OUTPUT_DIR": str(self.output), "FERMI_ATTEMPT": "1",
            "PYTHONPATH": str(self.packages), "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "torch", **env,
        }  # fmt: skip
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        pid = rank.start_rank(
            0, [python, "train.py"], variables, str(self.folder), output,
            fork=False, confinement=None, signals=(), inherited=(), pulse=self.given,
        )  # fmt: skip
        ended = os.waitpid(pid, 0)[1]
        log = self.log.read_text()
        assert ended == 0, log
        size = os.fstat(self.given.records).st_size
        lines = os.pread(self.given.records, size, 0).splitlines()
        return Found([json.loads(line) for line in lines], self.output, log)

    def _install(self, tracker: str) -> None:
        name = "lightning" if tracker == "pytorch_lightning" else tracker
        text = (STAND_INS / f"{name}.txt").read_text()
        if tracker == "pytorch_lightning":
            text = text.replace("=== lightning/pytorch/", "=== pytorch_lightning/")
        for part in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
            path, _, content = part.partition("\n")
            file = self.packages / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
            for folder in file.parents:
                if folder == self.packages:
                    break
                (folder / "__init__.py").touch()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.given.close()


def test_wandb_functions_log_at_the_runs_own_steps(run: Run) -> None:
    found = run(
        """
        import wandb
        wandb.init(project="p")
        wandb.log({"loss": 1.5, "val": {"acc": 0.5}, "flag": True, "none": None})
        wandb.log({"loss": 1.25})
        wandb.log({"a": 1}, commit=False)
        wandb.log({"b": 2})
        wandb.log({"loss": float("nan")})
        wandb.finish()
        """,
        "wandb",
    )
    assert found.points[:4] == [
        ("wandb", 0, {"loss": 1.5, "val.acc": 0.5}),
        ("wandb", 1, {"loss": 1.25}),
        ("wandb", 2, {"a": 1}),
        ("wandb", 2, {"b": 2}),
    ]
    assert found.points[4][1] == 3
    assert math.isnan(found.points[4][2]["loss"])
    assert "Using W&B in offline mode." in found.log


def test_wandb_steps_are_explicit_or_named_among_the_values(run: Run) -> None:
    found = run(
        """
        import numpy as np, torch, wandb
        with_run = wandb.init(project="p")
        with_run.log({"loss": 1.5}, step=10)
        with_run.log({"loss": np.float32(0.5), "z": np.array([2.5]), "many": np.ones(3)}, step=np.int64(11))
        with_run.log({"iter": 20, "loss": torch.tensor(0.25, requires_grad=True), "lr": 1e-3})
        with_run.log({"trainer/global_step": 30, "epoch": 1, "train/loss": torch.tensor([0.125])})
        wandb.finish()
        """,
        "wandb",
    )
    assert found.points == [
        ("wandb", 10, {"loss": 1.5}),
        ("wandb", 11, {"loss": 0.5, "z": 2.5}),
        ("wandb", 20, {"loss": 0.25, "lr": 1e-3}),
        ("wandb", 30, {"epoch": 1, "train/loss": 0.125}),
    ]


def test_steps_that_a_script_does_not_name_are_the_optimizers(run: Run) -> None:
    found = run(
        """
        import torch, wandb
        wandb.init(project="p")
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            model(torch.ones(1)).backward()
            optimizer.step()
            if step % 2:
                wandb.log({"loss": step})
        wandb.finish()
        """,
        "wandb",
    )
    assert found.points == [("wandb", 2, {"loss": 1}), ("wandb", 4, {"loss": 3})]


def test_wandb_configuration_becomes_parameters_without_secrets(run: Run) -> None:
    found = run(
        """
        import argparse, wandb
        given = argparse.Namespace(lr=0.1, opt={"name": "adam", "betas": (0.9, 0.99)}, wandb_key="x", hf_token="y")
        wandb.init(project="p", config=given)
        wandb.config.update({"batch_size": 32, "max_tokens": 5, "none": None, "password": "z"})
        wandb.config.seed = 7
        wandb.config["amp"] = True
        wandb.finish()
        """,
        "wandb",
    )
    assert found.points == []
    assert {name: one for name, one in found.parameters.items() if name != "opt.betas"} == {
        "lr": 0.1, "opt.name": "adam", "batch_size": 32, "max_tokens": 5, "seed": 7, "amp": True,
    }  # fmt: skip


def test_a_wandb_summary_is_no_point_of_the_curve(run: Run) -> None:
    found = run(
        """
        import wandb
        run = wandb.init(project="p")
        run.log({"loss": 1.5}, step=4)
        wandb.run.summary["loss"] = 0.5
        wandb.summary.update({"best": 0.75})
        wandb.finish()
        """,
        "wandb",
    )
    assert found.points == [
        ("wandb", 4, {"loss": 1.5}), ("wandb", 4, {"summary/loss": 0.5}), ("wandb", 4, {"summary/best": 0.75}),
    ]  # fmt: skip


def test_disabled_wandb_runs_have_points(run: Run) -> None:
    found = run(
        """
        import wandb
        wandb.init(project="p", mode="disabled", config={"lr": 1})
        wandb.log({"loss": 1.5})
        wandb.log({"loss": 1.0}, step=4)
        """,
        "wandb",
    )
    assert found.points == [("wandb", 0, {"loss": 1.5}), ("wandb", 4, {"loss": 1.0})]
    assert found.parameters == {"lr": 1}


def test_images_tables_histograms_and_texts_become_files(run: Run) -> None:
    found = run(
        """
        import numpy as np, wandb
        wandb.init(project="p")
        image = wandb.Image(np.zeros((1, 1, 3), dtype=np.uint8))
        table = wandb.Table(columns=["x", "y"], data=[[1, "a"], [2, "b"]])
        histogram = wandb.Histogram(np_histogram=([1, 2], [0, 1, 2]))
        wandb.log({"image": image, "eval/table": table, "h": histogram, "note": "text"}, step=3)
        wandb.finish()
        """,
        "wandb",
    )
    assert found.media == [
        ("image", "image", 3),
        ("table", "eval/table", 3),
        ("histogram", "h", 3),
        ("text", "note", 3),
    ]
    image, table, histogram, note = (file.read_bytes() for file in found.files)
    assert image.startswith(b"\x89PNG")
    assert json.loads(table) == {"columns": ["x", "y"], "rows": [[1, "a"], [2, "b"]]}
    assert json.loads(histogram) == {"edges": [0.0, 1.0, 2.0], "counts": [1.0, 2.0]}
    assert note == b"text"


def test_files_of_one_name_are_limited(run: Run) -> None:
    found = run(
        """
        import wandb
        run = wandb.init(project="p")
        for step in range(250):
            run.log({"note": f"text {step}"}, step=step)
        run.log({"long": "x" * (3 << 20)}, step=1)
        wandb.finish()
        """,
        "wandb",
    )
    assert [name for _, name, _ in found.media] == ["note"] * 200 + ["long"]
    assert found.files[-1].stat().st_size == 1 << 20
    assert len(list((found.output / "media" / "note").iterdir())) == 200


def test_wandb_raises_as_before_where_a_mode_is_set(run: Run) -> None:
    found = run(
        """
        import wandb
        try:
            wandb.init(project="p")
        except Exception as error:
            print("raised", error)
        """,
        "wandb",
        WANDB_MODE="online",
    )
    assert "raised No API key configured." in found.log


def test_wandb_runs_go_to_the_output_folder_unless_variables_name_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERMI_OUTPUT_DIR", str(tmp_path))
    pulse: Any = None
    for given, expected in (("", str(tmp_path)), ("/own", "/own")):
        monkeypatch.setenv("WANDB_DIR", given)
        wandb_hooks.folder(pulse, ModuleType("wandb.env"))
        assert os.environ["WANDB_DIR"] == expected


def test_mlflow_metrics_of_all_interfaces(run: Run) -> None:
    found = run(
        """
        import mlflow
        with mlflow.start_run() as run:
            mlflow.log_metric("loss", 2.0)
            mlflow.log_metric("loss", 1.5)
            for step in range(3):
                mlflow.log_metric("acc", step / 4, step=step)
            mlflow.log_metrics({"x": 1, "y": 2.5}, step=7)
            mlflow.MlflowClient().log_metric(run.info.run_id, "z", 1.0, step=9)
            mlflow.log_param("lr", 0.1)
            mlflow.log_params({"batch": 8, "amp": True, "name": "adam"})
            mlflow.set_tag("team", "x")
            mlflow.log_text("hello", "notes/a.txt")
        print(mlflow.get_tracking_uri())
        """,
        "mlflow",
    )
    assert found.points == [
        ("mlflow", 0, {"loss": 2.0}), ("mlflow", 1, {"loss": 1.5}),
        ("mlflow", 0, {"acc": 0.0}), ("mlflow", 1, {"acc": 0.25}), ("mlflow", 2, {"acc": 0.5}),
        ("mlflow", 7, {"x": 1, "y": 2.5}), ("mlflow", 9, {"z": 1.0}),
    ]  # fmt: skip
    assert found.parameters == {"lr": 0.1, "batch": 8, "amp": True, "name": "adam", "team": "x"}
    assert found.media == [("text", "notes/a.txt", 0)]
    assert f"sqlite:///{found.output}/mlflow/mlflow.db" in found.log
    assert not (run.folder / "mlflow.db").exists()


def test_an_mlflow_tracking_uri_of_the_script_is_kept(run: Run) -> None:
    found = run(
        """
        import mlflow
        mlflow.set_tracking_uri("sqlite:///own.db")
        with mlflow.start_run():
            mlflow.log_metric("loss", 2.0, step=1)
        print(mlflow.get_tracking_uri())
        """,
        "mlflow",
    )
    assert found.points == [("mlflow", 1, {"loss": 2.0})]
    assert "sqlite:///own.db" in found.log
    assert list(found.output.iterdir()) == []


TENSORBOARD = """
import torch
from {package} import SummaryWriter
writer = SummaryWriter("runs")
writer.add_scalar("loss/train", 0.1, 1)
writer.add_scalar("loss/train", torch.tensor(0.25), global_step=2)
writer.add_scalar("free", 3)
writer.add_scalar("free", 4)
writer.add_scalars("both", dict(a=1.0, b=2.0), 3)
writer.add_text("note", "hello", 5)
writer.add_histogram("h", torch.arange(10.0), 6)
writer.add_hparams(dict(lr=0.1, name="x", on=True), dict(final=0.5))
writer.close()
"""


@pytest.mark.parametrize("package", ["torch.utils.tensorboard", "tensorboardX"])
def test_tensorboard_writers(run: Run, package: str) -> None:
    found = run(TENSORBOARD.format(package=package), *(["tensorboardX"] if package == "tensorboardX" else []))
    assert found.points == [
        ("tensorboard", 1, {"loss/train": 0.1}), ("tensorboard", 2, {"loss/train": 0.25}),
        ("tensorboard", 0, {"free": 3}), ("tensorboard", 1, {"free": 4}),
        ("tensorboard", 3, {"both/a": 1.0}), ("tensorboard", 3, {"both/b": 2.0}),
        ("tensorboard", 0, {"final": 0.5}),
    ]  # fmt: skip
    assert found.parameters == {"lr": 0.1, "name": "x", "on": True}
    assert found.media == [("text", "note", 5), ("histogram", "h", 6)]
    assert found.files[0].read_text() == "hello"
    histogram = json.loads(found.files[1].read_text())
    assert len(histogram["edges"]) == len(histogram["counts"]) + 1
    assert sum(histogram["counts"]) == 10


TRAINER = """
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def forward(self, x=None, labels=None):
        out = self.layer(x)
        return {{"loss": out.mean() * 0 + 0.5, "logits": out}}

class Own(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        {callback}

data = [{{"x": torch.ones(2), "labels": torch.ones(1)}} for _ in range(16)]
args = TrainingArguments("out", max_steps=4, logging_steps=2, per_device_train_batch_size=2, eval_strategy="steps",
                         eval_steps=4, save_strategy="no", use_cpu=True, report_to={report_to}, hub_token="hf_x",
                         learning_rate=0.5)
Trainer(Model(), args, train_dataset=data, eval_dataset=data, callbacks=[Own()]).train()
"""
TRAINER_POINTS = [
    ("transformers", 2, {"loss": 0.5, "grad_norm": 0.0, "learning_rate": 0.375, "epoch": 0.25}),
    ("transformers", 4, {"loss": 0.5, "grad_norm": 0.0, "learning_rate": 0.125, "epoch": 0.5}),
    ("transformers", 4, {"eval_loss": 0.5, "epoch": 0.5}),
    ("transformers", 4, {"summary/train_loss": 0.5, "epoch": 0.5}),
]


def select_values(points: list[tuple[str, int, dict[str, float]]]) -> list[tuple[str, int, dict[str, float]]]:
    """Leave out how long it took."""
    timed = re.compile("runtime|per_second|flos")
    return [
        (source, step, {name: value for name, value in values.items() if not timed.search(name)})
        for source, step, values in points
    ]


def test_the_hugging_face_trainers_logs_and_arguments(run: Run) -> None:
    found = run(TRAINER.format(callback="pass", report_to='"none"'), "transformers")
    assert select_values(found.points) == TRAINER_POINTS
    assert found.parameters["learning_rate"] == 0.5
    assert found.parameters["max_steps"] == 4
    assert "hub_token" not in found.parameters


def test_what_the_trainer_passes_on_to_trackers_is_recorded_once(run: Run) -> None:
    callback = 'import wandb; wandb.run or wandb.init(); wandb.log({"train/loss": logs.get("loss", 0), "own": 5.0})'
    found = run(TRAINER.format(callback=callback, report_to='"none"'), "transformers", "wandb")
    points = select_values(found.points)
    assert [one for one in points if one[0] == "transformers"] == TRAINER_POINTS
    assert [values for source, _, values in points if source == "wandb"][:2] == [{"own": 5.0}, {"own": 5.0}]


ACCELERATE = """
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, log_with={trackers}, project_dir="proj")
parameter = torch.nn.Parameter(torch.ones(1))
model, optimizer = accelerator.prepare(torch.nn.Linear(1, 1), torch.optim.SGD([parameter], lr=0.1))
accelerator.init_trackers("p", config={{"lr": 0.1, "name": "x"}})
accelerator.log({{"loss": 1.5, "text": "hi"}}, step=3)
accelerator.log({{"loss": torch.tensor(1.25)}}, step=4)
optimizer.step()
accelerator.log({{"loss": 1.0}})
if accelerator.trackers:
    accelerator.get_tracker("wandb", unwrap=True).log({{"own": 1}}, step=5)
accelerator.end_training()
"""


@pytest.mark.parametrize("trackers", ["None", '["wandb", "tensorboard"]'])
def test_accelerate_records_once_with_any_trackers(run: Run, trackers: str) -> None:
    found = run(ACCELERATE.format(trackers=trackers), "accelerate", "wandb")
    own = [("wandb", 5, {"own": 1})] if trackers != "None" else []
    assert found.points == [
        ("accelerate", 3, {"loss": 1.5}), ("accelerate", 4, {"loss": 1.25}), ("accelerate", 1, {"loss": 1.0}), *own,
    ]  # fmt: skip
    assert found.parameters == {"lr": 0.1, "name": "x"}
    assert found.media == ([("text", "text", 3)] if own else []), "the same text of two trackers is one file"


LIGHTNING = """
import torch
import {package} as L
from {loggers} import CSVLogger

class Model(L.LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, index):
        self.log("loss", torch.tensor(0.5), prog_bar=True)
        self.log("index", float(index))
        return self.layer(batch).sum()
    def validation_step(self, batch, index):
        self.log("val_loss", torch.tensor(0.25))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

data = torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=2)
L.Trainer(max_epochs=2, accelerator="cpu", logger={logger}, log_every_n_steps=2, enable_checkpointing=False,
          enable_model_summary=False, enable_progress_bar=False).fit(Model(), data, data)
"""


@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
@pytest.mark.parametrize("logger", ["False", 'CSVLogger("csv")'])
def test_lightning_records_with_and_without_a_logger(run: Run, package: str, logger: str) -> None:
    loggers = "lightning.pytorch.loggers" if package == "lightning" else f"{package}.loggers"
    found = run(LIGHTNING.format(package=package, loggers=loggers, logger=logger), package)
    assert found.points == [
        ("lightning", 1, {"loss": 0.5, "index": 1.0, "epoch": 0}),
        ("lightning", 3, {"loss": 0.5, "index": 3.0, "epoch": 0}),
        ("lightning", 3, {"val_loss": 0.25, "epoch": 0}),
        ("lightning", 5, {"loss": 0.5, "index": 1.0, "epoch": 1}),
        ("lightning", 7, {"loss": 0.5, "index": 3.0, "epoch": 1}),
        ("lightning", 7, {"val_loss": 0.25, "epoch": 1}),
    ]
    assert found.parameters == {"lr": 0.1}


def test_fabrics_csv_logger(run: Run) -> None:
    found = run(
        """
        from lightning.fabric.loggers import CSVLogger
        logger = CSVLogger("logs")
        logger.log_metrics({"loss": 1.0}, 3)
        logger.log_metrics({"loss": 0.5})
        """,
        "lightning",
    )
    assert found.points == [("lightning", 3, {"loss": 1.0}), ("lightning", 1, {"loss": 0.5})]


def test_keras_logs_of_batches_and_epochs(run: Run) -> None:
    found = run(
        """
        import keras
        callbacks = keras.callbacks.CallbackList([])
        callbacks.on_train_begin()
        for epoch in range(2):
            callbacks.on_epoch_begin(epoch)
            callbacks.on_train_batch_end(0, {"loss": 2.0})
            callbacks.on_train_batch_end(3, {"loss": 1.0})  # several steps per execution
            callbacks.on_epoch_end(epoch, {"loss": 1.0, "val_loss": 1.5})
        callbacks.on_train_end()
        """,
        "keras",
    )
    epochs = [one for one in found.points if "epoch" in one[2]]
    batches = sorted((step, values) for _, step, values in found.points if "epoch" not in values)  # from threads
    assert batches == [(1, {"loss": 2.0}), (4, {"loss": 1.0}), (5, {"loss": 2.0}), (8, {"loss": 1.0})]
    assert epochs == [
        ("keras", 4, {"epoch": 1, "loss": 1.0, "val_loss": 1.5}),
        ("keras", 8, {"epoch": 2, "loss": 1.0, "val_loss": 1.5}),
    ]


@pytest.mark.parametrize(("tracker", "nested"), [("swanlab", "val/acc"), ("trackio", "val.acc")])
def test_swanlab_and_trackio(run: Run, tracker: str, nested: str) -> None:
    found = run(
        f"""
        import {tracker} as tracker
        run = tracker.init(project="p", config={{"lr": 0.1, "opt": {{"name": "adam"}}}})
        tracker.log({{"loss": 1.5, "val": {{"acc": 0.5}}}})
        tracker.log({{"loss": 1.25}})
        run.log({{"loss": 1.0}}, step=9)
        tracker.finish()
        """,
        tracker,
    )
    assert found.points == [
        (tracker, 0, {"loss": 1.5, nested: 0.5}), (tracker, 1, {"loss": 1.25}), (tracker, 9, {"loss": 1.0}),
    ]  # fmt: skip
    assert found.parameters == {"lr": 0.1, "opt.name": "adam"}


def test_aim(run: Run) -> None:
    found = run(
        """
        from aim import Run, Text
        run = Run()
        run["hparams"] = {"lr": 0.1, "opt": {"name": "adam"}}
        run.track(1.5, name="loss", context={"subset": "val"})
        run.track(1.25, name="loss", context={"subset": "val"})
        run.track(1.0, name="loss", step=5)
        run.track({"a": 1.0, "b": 2.0}, step=6)
        run.track(Text("hello"), name="note", step=3)
        run.close()
        """,
        "aim",
    )
    assert found.points == [
        ("aim", 0, {"val/loss": 1.5}), ("aim", 1, {"val/loss": 1.25}), ("aim", 5, {"loss": 1.0}),
        ("aim", 6, {"a": 1.0, "b": 2.0}),
    ]  # fmt: skip
    assert found.parameters == {"lr": 0.1, "opt.name": "adam"}
    assert found.media == [("text", "note", 3)]


def test_comet(run: Run) -> None:
    found = run(
        """
        import comet_ml
        experiment = comet_ml.OfflineExperiment(offline_directory="offline")
        experiment.log_parameters({"lr": 0.1})
        experiment.log_parameter("seed", 3)
        experiment.log_metric("loss", 1.5, step=1)
        with experiment.train():
            experiment.log_metrics({"loss": 1.0, "acc": 0.5}, step=2)
        experiment.log_metric("free", 3)
        experiment.end()
        """,
        "comet_ml",
    )
    assert found.points == [
        ("comet", 1, {"loss": 1.5}), ("comet", 2, {"train_acc": 0.5}), ("comet", 2, {"train_loss": 1.0}),
        ("comet", 2, {"free": 3}),
    ]  # fmt: skip
    assert found.parameters == {"lr": 0.1, "seed": 3}


def test_clearml(run: Run) -> None:
    found = run(
        """
        from clearml import Task
        Task.set_offline(True)
        task = Task.init("p", "n", auto_connect_frameworks=False, auto_resource_monitoring=False)
        task.connect({"lr": 0.1})
        logger = task.get_logger()
        logger.report_scalar("loss", "train", 1.5, 1)
        logger.report_scalar("loss", "loss", value=1.25, iteration=2)
        logger.report_single_value("best", 3)
        task.close()
        """,
        "clearml",
    )
    assert found.points == [
        ("clearml", 1, {"loss/train": 1.5}), ("clearml", 2, {"loss": 1.25}), ("clearml", 0, {"summary/best": 3}),
    ]  # fmt: skip
    assert found.parameters == {"lr": 0.1}


def test_a_script_without_a_tracker_imports_no_hook(run: Run) -> None:
    found = run("import sys\nprint(sorted(name for name in sys.modules if '_hooks' in name or 'tracker_' in name))")
    assert (found.log, found.records) == ("[]\n", [])


def test_a_scripts_own_modules_of_the_same_names_are_not_touched(run: Run) -> None:
    for name in ("wandb", "trackio"):
        (run.folder / name).mkdir()
        (run.folder / name / "__init__.py").write_text("from .run import Run, log\n")
        (run.folder / name / "run.py").write_text(
            "class Run:\n    def log(self, text):\n        return f'own {text}'\n\nlog = Run().log\n"
        )
    found = run("import trackio, wandb\nprint(wandb.log('a'), trackio.log('b'), trackio.log('c'))")
    assert (found.log, found.records) == ("own a own b own c\n", [])


def test_another_version_leaves_the_hook_off(run: Run) -> None:
    for path, text in {
        "wandb/__init__.py": "from .sdk import wandb_run, wandb_config\n",
        "wandb/sdk/__init__.py": "",
        "wandb/sdk/wandb_run.py": "def log(data):\n    return data\n",
        "wandb/sdk/wandb_config.py": "Config = None\n",
    }.items():
        (run.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (run.folder / path).write_text(text)
    found = run("import wandb\nprint(wandb.wandb_run.log(3))")
    assert (found.log, found.records) == ("3\n", [])


def test_values_that_cannot_be_read_change_nothing(run: Run) -> None:
    found = run(
        """
        import wandb
        class Broken:
            shape = ()
            def item(self):
                raise RuntimeError("broken")
            def __str__(self):
                raise RuntimeError("broken")
        run = wandb.init(project="p", mode="disabled", config={"a": 1})
        run.log({"loss": Broken()})
        run.log({"loss": 1.0, "many": list(range(5))}, step=2)
        print("goes on")
        """,
        "wandb",
    )
    assert found.points == [("wandb", 2, {"loss": 1.0})]
    assert found.log.endswith("goes on\n")
