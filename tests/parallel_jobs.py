"""Jobs of a framework as the local engine runs them: forked from one process that has everything imported.

All jobs that do not depend on each other are started at once by that one process: importing is the dear part.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fermi.engines.local import LocalBackend
from fermi.jobs.spec import Handle, JobSpec, Node, Observation, Phase
from fermi.planning import plugins, validate
from fermi.runner.record_frames import strip_frames
from fermi.tokenized_data import TokenizedPair
from tests.platform_process import free_port
from tests.polling import until

T = TypeVar("T")

TINY = {
    "layers": 1,
    "heads": 2,
    "hiddenSize": 16,
    "sequenceLength": 16,
    "learningRate": 0.01,
    "warmupSteps": 2,
    "totalSteps": 6,
    "logEvery": 1,
    "evalEvery": 3,
    "evalBatches": 2,
    "checkpointEvery": 2,
    "keepCheckpoints": 2,
}


class ParallelJobs:
    """A local backend whose jobs are started together. `framework`: the one that jobs are of, if nothing else is
    said; `preload`: what is imported before ranks are forked, if not what the framework names."""

    def __init__(
        self,
        folder: Path,
        data: TokenizedPair,
        framework: str,
        *,
        python: str = sys.executable,
        preload: Sequence[str] = (),
    ) -> None:
        self.folder, self.data, self.framework = folder, data, framework
        self.preload = preload or plugins.get_framework(framework).preload
        self.backend = LocalBackend({"data_dir": str(folder), "warm": False, "python": python})
        self.handles: dict[str, Handle] = {}
        self.launcher, self.backend.launcher = self.backend.launcher, self  # type: ignore[assignment]
        self.waiting: list[Path] = []

    def launch(self, name: str, specs: list[Path], *_: Any) -> None:
        """In the launcher's place: remembers what to start."""
        self.waiting += specs

    def job(self, name: str, gpus: tuple[int, ...], framework: str = "", **changes: Any) -> JobSpec:
        """`hyperparameters` are added to the tiny ones."""
        hyperparameters = {**TINY, **changes.pop("hyperparameters", {})}
        nodes = tuple(self.node(i, n) for i, n in enumerate(gpus))
        values = {
            "train_data": str(self.data.train_path),
            "valid_data": str(self.data.valid_path),
            "checkpoint_dir": str(self.folder / "checkpoints" / name),
            "master_port": free_port(),
            "attempt": 1,
            **changes,
        }
        return JobSpec(name, framework or self.framework, nodes, "env-0", hyperparameters=hyperparameters, **values)

    def node(self, index: int, gpus: int) -> Node:
        return Node(f"env-{index}", f"node-{index}", gpu_type="A100", gpu_count=gpus, emulated=True)

    def submit(self, job: JobSpec) -> None:
        assert validate.find_problems(job) == []
        plan = plugins.get_framework(job.framework).plan(job)
        self.handles[job.task_id] = Handle(job.name, job.task_id, job.attempt, job.world_size)
        self.backend.submit(self.backend.render(job, plan))

    def start(self) -> None:
        specs, self.waiting = self.waiting, []
        self.launcher.launch(specs[0].parent.name, specs, self.preload, self.folder / "launch.log")

    def handle(self, name: str) -> Handle:
        return self.handles[name]

    def observe(self, name: str) -> Observation:
        handle = self.handle(name)
        return self.backend.observe([handle])[handle.name]

    def wait(self, name: str, *phases: Phase) -> Observation:
        return until(lambda: (seen := self.observe(name)).phase in phases and seen, seconds=300, what=name)

    def says(self, name: str, what: str, condition: Callable[[list[dict[str, Any]]], T]) -> T:
        """What `condition` makes of the records of a job, as soon as that is something."""

        def said() -> T:
            ended = self.observe(name).phase in (Phase.SUCCEEDED, Phase.FAILED)
            found = condition(self.records(name))
            assert found or not ended, f"{name} ended without {what}: {self.observe(name)}\n{self.logs(name)}"
            return found

        return until(said, seconds=300, what=f"{name}: {what}")

    def logs(self, name: str) -> str:
        """The end of every rank's."""
        return "\n".join(self.log(name, rank)[-2000:] for rank in range(self.handle(name).world_size))

    def done(self, name: str) -> list[dict[str, Any]]:
        """What its rank 0 said, once all ranks have ended well."""
        seen = self.wait(name, Phase.SUCCEEDED, Phase.FAILED)
        assert seen.phase == Phase.SUCCEEDED, f"{seen}\n{self.logs(name)}"
        return self.records(name)

    def log(self, name: str, rank: int = 0) -> str:
        return strip_frames(self.backend.logs(self.handle(name), rank, 0).data).decode()

    def records(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log(name).splitlines() if line.startswith("{") and line[-1] == "}"]

    def close(self) -> None:
        for name, handle in self.handles.items():
            self.backend.cancel(handle, 0.0)
            until(lambda name=name: self.observe(name).left is False, what=f"{name} gone")


def events(records: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [record for record in records if record.get("event") == name]


def curve(records: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """What is reproducible of each step."""
    steps: dict[int, dict[str, float]] = {}
    for record in records:
        if "step" in record and "event" not in record:
            kept = {name: record[name] for name in ("loss", "lr", "val_loss") if name in record}
            steps.setdefault(record["step"], {}).update(kept)
    return steps
