"""Every framework through the whole platform: a request becomes real training on one node, on 2+2 and on 1+2 ranks,
survives the kill of a rank, and learns what one process learns from the same sequences."""

import json
import os
import signal
from importlib.util import find_spec
from typing import Any

import pytest

from tests.platform_process import WARM, Running
from tests.polling import until
from tests.trainer import PATIENCE, STEPS, Trainer

pytestmark = pytest.mark.e2e
SETTINGS = WARM

QUICK = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0"}  # compiles twice as fast
KINDS: list[Any] = [
    pytest.param("torch", "pytorch-ddp", {}, id="ddp"),
    pytest.param("torch", "pytorch-fsdp", {}, id="fsdp"),
    *(pytest.param("deepspeed", "deepspeed", {"options": {"zeroStage": n}}, id=f"zero-{n}") for n in (1, 2, 3)),
    pytest.param("jax", "jax", {"env": QUICK}, id="jax"),
]


@pytest.fixture(scope="module")
def trainer(platform: Running) -> Trainer:
    return Trainer(platform)


@pytest.mark.parametrize(("needs", "framework", "changes"), KINDS)
def test_it_trains_on_any_nodes_and_a_killed_rank_loses_only_steps_since_the_checkpoint(
    needs: str, framework: str, changes: dict[str, Any], trainer: Trainer
) -> None:
    if not find_spec(needs):
        pytest.skip(f"needs {needs}")
    platform = trainer.platform
    killed = trainer.submit(framework, "one", "two", **changes, stepDelay=0.5)
    even = trainer.submit(framework, "two-a", "two-b", **changes)
    alone = trainer.submit(framework, "alone", **changes)
    until(lambda: trainer.has_checkpoint(killed), seconds=PATIENCE, what="a checkpoint")
    os.kill(platform.rank_pid(killed, 2), signal.SIGKILL)

    task = trainer.done(killed)
    assert [attempt["outcome"]["code"] for attempt in task["attempts"]] == ["RANK_KILLED", "COMPLETED"]
    resumed = next(e for e in platform.items(killed, "events", pageSize=200) if e["code"] == "SCRIPT_RESUMED")
    assert 2 <= resumed["params"]["step"] < STEPS
    for task_id, world_size in ((killed, 3), (even, 4), (alone, 1)):
        assert trainer.done(task_id)["worldSize"] == world_size
        trainer.assert_same(task_id)
        assert {checkpoint["step"] for checkpoint in platform.items(task_id, "checkpoints")} >= {STEPS}
    assert "world size 3" in platform.log(killed, 2, attempt=2).lower().replace(":", "")
    assert platform.strays() == []


@pytest.mark.skipif(not find_spec("deepspeed"), reason="needs deepspeed")
def test_the_document_s_request_trains_fourteen_processes_with_a_configuration_that_deepspeed_loads(
    platform: Running,
) -> None:
    ids = ["env-001", "env-003", "env-005"]
    strategy = {"dataParallel": 2, "pipelineParallel": 4, "tensorParallel": 8}
    config = {"enabled": True, "nodeIds": ids, "masterNode": "env-001", "framework": "deepspeed", "strategy": strategy}
    tiny = {"layers": 1, "heads": 2, "hiddenSize": 16, "sequenceLength": 16, "totalSteps": 3, "evalBatches": 1}
    request = platform.request(ids, taskName="gpt3-pretraining", distributedConfig=config, hyperparameters=tiny)
    preview = platform.api.post("/training-tasks/preview", json=request).json()["data"]
    assert preview["problems"] == []
    assert {"CROSS_ZONE", "STRATEGY_NOT_RENDERED"} <= {warning["code"] for warning in preview["warnings"]}
    [shown] = [file["content"] for file in preview["files"] if file["name"] == "ds_config.json"]

    answer = platform.api.post("/training-tasks", json=request).json()["data"]
    assert answer["distributedInfo"] == {
        "nodeCount": 3, "totalGpus": 14, "masterNode": "env-001", "framework": "deepspeed", "worldSize": 14,
    }  # fmt: skip
    task = platform.until_state(answer["taskId"], "succeeded", seconds=PATIENCE)
    assert (task["step"], len(task["ranks"])) == (3, 14)
    files = platform.get(f"/training-tasks/{answer['taskId']}/plan")["files"]
    assert shown in [file["content"] for file in files]
    assert json.loads(shown)["train_batch_size"] % 14 == 0
    for rank in range(14):
        assert f"[Rank {rank}] World Size: 14" in platform.log(answer["taskId"], rank)
