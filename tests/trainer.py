"""The same small training on any framework and any shape of nodes, through a running platform."""

from typing import Any

from tests.loss_curves import assert_alike
from tests.platform_process import Running

GLOBAL_BATCH = 12
STEPS = 8
TINY = {"layers": 1, "heads": 2, "hiddenSize": 16, "sequenceLength": 16, "learningRate": 0.01, "warmupSteps": 2,
        "totalSteps": STEPS, "logEvery": 1, "evalEvery": 4, "evalBatches": 2, "checkpointEvery": 2}  # fmt: skip
PATIENCE = 600
NODES = {"alone": 1, "one": 1, "two": 2, "two-a": 2, "two-b": 2}
"""Environments that are registered by hand, with so many emulated GPUs."""


class Trainer:
    def __init__(self, platform: Running) -> None:
        self.platform = platform
        self.single: dict[int, dict[str, float]] = {}
        mine = platform.get("/dev-environments/env-001")
        self.ids = {}
        for name, ranks in NODES.items():
            body = {"name": name, "zone": mine["zone"]["id"], "projectId": mine["projectId"], "status": "running",
                    "clusterId": mine["clusterId"], "gpuType": "A100", "gpuCount": ranks, "emulated": True}  # fmt: skip
            answer = platform.api.post("/dev-environments", json=body)
            assert answer.status_code == 201, answer.text
            self.ids[name] = answer.json()["data"]["id"]

    def submit(self, framework: str, *nodes: str, **changes: Any) -> str:
        """`changes`: of the hyperparameters; `options` and `env` are the request's."""
        ids = [self.ids[name] for name in nodes]
        options, env = changes.pop("options", {}), changes.pop("env", {})
        batch = GLOBAL_BATCH // sum(NODES[name] for name in nodes)
        config = {"nodeIds": ids, "masterNode": ids[0], "framework": framework, "options": options}
        return self.platform.create(
            ids, distributedConfig=config, env=env, hyperparameters={**TINY, "batchSize": batch, **changes}
        )

    def done(self, task_id: str) -> dict[str, Any]:
        return self.platform.until_state(task_id, "succeeded", seconds=PATIENCE)

    def has_checkpoint(self, task_id: str) -> bool:
        task = self.platform.task(task_id)
        assert task["status"] not in ("failed", "stopped"), (task["reason"], self.platform.log(task_id))
        return bool(self.platform.items(task_id, "checkpoints"))

    def curve(self, task_id: str) -> dict[int, dict[str, float]]:
        """What is reproducible of each step; of a step that was trained twice, the later."""
        steps: dict[int, dict[str, float]] = {}
        for point in self.platform.items(task_id, "metrics", limit=5000):
            kept = {name: value for name, value in point["values"].items() if name in ("loss", "lr", "val_loss")}
            steps.setdefault(point["step"], {}).update(kept)
        return {step: values for step, values in steps.items() if values}

    def of_one_process(self) -> dict[int, dict[str, float]]:
        """The curve of DDP's single process, trained once."""
        if not self.single:
            task_id = self.submit("pytorch-ddp", "alone")
            self.done(task_id)
            self.single = self.curve(task_id)
        return self.single

    def assert_same(self, task_id: str) -> None:
        """As one process learns from the same sequences."""
        found = self.curve(task_id)
        assert list(found) == list(range(1, STEPS + 1))
        assert_alike(found, self.of_one_process())
