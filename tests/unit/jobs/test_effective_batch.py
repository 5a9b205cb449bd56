"""What an optimizer step comes to over all ranks, as every framework reckons it."""

import math
from typing import Any

import pytest

from fermi.jobs.effective_batch import EffectiveBatch
from fermi.jobs.spec import Entrypoint, JobSpec, Node
from fermi.planning import plugins

NODES = (Node("a", "a", gpu_type="A100", gpu_count=2), Node("b", "b", gpu_type="A100", gpu_count=6))
GIVEN = {"batchSize": 4, "gradientAccumulationSteps": 2, "learningRate": 0.01, "learningRateScaling": "linear"}


def batch(framework: str, hyperparameters: dict[str, Any] = GIVEN, **more: Any) -> EffectiveBatch | None:
    spec = JobSpec("task", framework, NODES, "a", hyperparameters=hyperparameters, **more)
    return plugins.get_framework(framework).effective_batch(spec)


@pytest.mark.parametrize("framework", ["pytorch-ddp", "pytorch-fsdp", "horovod", "deepspeed", "jax"])
def test_the_effective_batch_is_per_rank_batch_times_ranks_times_micro_steps(framework: str) -> None:
    found = batch(framework)
    assert found is not None
    assert (found.per_rank, found.ranks, found.accumulation, found.effective) == (4, 8, 2, 64)
    assert found.scaled_learning_rate == pytest.approx(0.08)
    assert found.to_json()["scaledLearningRate"] == found.scaled_learning_rate


@pytest.mark.parametrize("framework", ["deepspeed", "megatron-lm", "megatron-deepspeed"])
def test_ranks_that_split_a_model_count_once(framework: str) -> None:
    model = {"layers": 4, "heads": 4, "hiddenSize": 64, "sequenceLength": 64}
    train = "trainBatchSize" if framework == "deepspeed" else "globalBatchSize"
    split = {"tensorParallel": 2, "pipelineParallel": 2}
    found = batch(
        framework,
        {**GIVEN, **model, "learningRateScaling": "sqrt"},
        strategy=split,
        options={train: 32, "microBatchSize": 4},
    )
    assert found is not None
    assert (found.per_rank, found.ranks, found.accumulation, found.effective) == (4, 2, 4, 32)
    assert found.scaled_learning_rate == pytest.approx(0.01 * math.sqrt(2))


def test_a_train_batch_overrides_hyperparameters() -> None:
    found = batch("deepspeed", {"batchSize": 3}, options={"trainBatchSize": 64})
    assert found is not None
    assert (found.effective, found.per_rank, found.learning_rate) == (64, 8, 1e-4)
    assert batch("deepspeed", options={"trainBatchSize": 65}) is None


def test_a_jax_global_batch_is_divided() -> None:
    found = batch("jax", {"batchSize": 16}, options={"batchIsGlobal": True})
    assert found is not None
    assert (found.effective, found.per_rank) == (16, 2)
    assert batch("jax", {"batchSize": 15}, options={"batchIsGlobal": True}) is None


def test_a_custom_script_has_only_what_it_is_given() -> None:
    own = Entrypoint("train.py")
    assert batch("pytorch-ddp", {"batchSize": "many"}, entrypoint=own) is None
    found = batch("pytorch-ddp", {"batchSize": 4}, entrypoint=own)
    assert found is not None
    assert found.own_script
    assert (found.effective, found.learning_rate, found.scaled_learning_rate) == (32, None, None)
    assert batch("pytorch-ddp", {}) == EffectiveBatch(8, 8, 1, 3e-3)
