"""Elastic jobs: which sizes they may have, who takes part, and the same global batch on each of them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi import messages
from fermi.jobs import elastic
from fermi.jobs.spec import Elastic, Entrypoint, JobSpec, Node, Plan, Problem
from fermi.planning import elastic_sizes, plugins, validate

NODES = tuple(Node(f"n{i}", f"n{i}", gpu_type="A100", gpu_count=2, emulated=True) for i in range(1, 5))
FOUR = {name: frozenset(ids) for name, ids in {"all": ("n1", "n2", "n3", "n4"), "three": ("n1", "n2", "n4")}.items()}


def job(framework: str = "pytorch-ddp", low: int = 2, high: int = 4, **changes: Any) -> JobSpec:
    """Four nodes of two processes, n1 the master."""
    values = {"hyperparameters": {"batchSize": 8, "learningRate": 0.01, "totalSteps": 10}, **changes}
    return elastic_sizes.set_full_size(JobSpec("t", framework, NODES, "n1", elastic=Elastic(low, high), **values))


def on(spec: JobSpec, *usable: str) -> JobSpec:
    return next(elastic_sizes.list_resized_jobs(spec, set(usable)))


def list_values(plan: Plan, name: str) -> list[str]:
    return [process.env[name] for node in plan.nodes for process in node.processes]


def argument(plan: Plan, flag: str) -> str:
    command = plan.nodes[0].command
    return str(command[command.index(flag) + 1])


def codes(found: list[Problem]) -> list[tuple[str, str]]:
    for problem in found:
        for language in ("zh", "en"):
            assert all(messages.render_text(problem.code, language, **problem.params))
    return [(problem.field, problem.code) for problem in found]


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 32), st.integers(1, 8), st.booleans())
def test_every_size_has_the_same_batch_and_no_rank_more_at_once(
    asked: int, ranks: int, rows: int, steps: int, even: bool
) -> None:
    batch = asked * rows * steps
    share = elastic.divide_batch(batch, ranks, rows, even=even)
    if share is None:
        fit = [n for n in range(1, batch + 1) if batch % n == 0 and ranks <= batch // n <= ranks * rows]
        assert not [n for n in fit if not even or batch // n % ranks == 0]
        return
    assert share.steps * sum(share.rows) == batch
    assert len(share.rows) == ranks
    assert 1 <= min(share.rows) <= max(share.rows) <= rows
    assert max(share.rows) - min(share.rows) <= (0 if even else 1)
    if ranks == asked:
        assert (share.steps, set(share.rows)) == (steps, {rows}), "at the size asked for nothing changes"


def test_on_three_of_four_nodes_each_rank_has_fewer_rows_and_there_are_more_micro_steps() -> None:
    three = on(job(), "n1", "n2", "n4")
    assert ([node.id for node in three.nodes], three.master, three.world_size) == (["n1", "n2", "n4"], "n1", 6)
    plan = plugins.get_framework("ddp").plan(three)
    assert list_values(plan, "FERMI_LOCAL_BATCH_SIZE") == ["6", "6", "5", "5", "5", "5"]
    assert set(list_values(plan, "FERMI_ACCUMULATION_STEPS")) == {"2"}
    assert set(list_values(plan, "FERMI_GLOBAL_BATCH_SIZE")) == {"64"}
    assert set(list_values(plan, "FERMI_FULL_WORLD_SIZE")) == {"8"}
    assert argument(plan, "--gradient_accumulation_steps") == "2"
    assert plan.world_size == 6


def test_a_lost_master_is_replaced_by_the_first_rank_until_it_returns() -> None:
    without = on(job(), "n2", "n3", "n4")
    assert (without.master, [node.id for node in without.nodes]) == ("n2", ["n2", "n3", "n4"])
    assert validate.find_problems(without) == []
    assert on(without, "n1", "n2", "n3", "n4") == job()


def test_the_largest_size_comes_first_and_none_below_the_minimum() -> None:
    spec = job()
    assert [len(found.nodes) for found in elastic_sizes.list_resized_jobs(spec, FOUR["all"])] == [4, 3, 2]
    assert [len(found.nodes) for found in elastic_sizes.list_resized_jobs(spec, FOUR["three"])] == [3, 2]
    assert list(elastic_sizes.list_resized_jobs(spec, {"n1"})) == []


def test_with_surplus_nodes_it_keeps_its_own() -> None:
    spec = job(high=3)
    assert [node.id for node in spec.nodes] == ["n1", "n2", "n3"]
    moved = on(spec, "n1", "n3", "n4")
    assert [node.id for node in moved.nodes] == ["n1", "n3", "n4"]
    assert [node.id for node in on(moved, *FOUR["all"]).nodes] == ["n1", "n3", "n4"]


def test_the_learning_rate_is_that_of_the_requested_size() -> None:
    spec = job(hyperparameters={"batchSize": 8, "learningRate": 0.01, "learningRateScaling": "linear"})
    framework = plugins.get_framework("ddp")
    assert argument(framework.plan(spec), "--lr_scaling") == "linear"
    smaller = framework.plan(on(spec, "n1", "n2"))
    assert (argument(smaller, "--lr_scaling"), argument(smaller, "--learning_rate")) == ("none", "0.08")


@pytest.mark.parametrize("framework", ["horovod", "jax"])
def test_where_ranks_need_equal_shares_only_such_sizes_count(framework: str) -> None:
    spec = job(framework)
    assert elastic_sizes.list_sizes(spec) == [2, 4]
    assert codes(elastic_sizes.find_warnings(spec)) == [("distributedConfig.elastic", "ELASTIC_SIZES")]
    assert elastic_sizes.find_warnings(spec)[0].params["nearest"] == 48
    two = plugins.get_framework(framework).plan(on(spec, "n1", "n2", "n3"))
    given = [argument(two, flag) for flag in ("--batch_size", "--gradient_accumulation_steps")]
    assert (given, two.world_size) == (["8", "2"], 4)


def test_jax_shards_weights_over_a_divisor_of_the_remaining_ranks() -> None:
    spec = job("jax", hyperparameters={"batchSize": 6}, strategy={"dataParallel": 2, "fsdpParallel": 4})
    for names, shards in {("n1", "n2", "n3", "n4"): "4", ("n1", "n2", "n3"): "3", ("n1", "n2"): "4"}.items():
        now = on(spec, *names)
        assert validate.find_problems(now) == []
        assert argument(plugins.get_framework("jax").plan(now), "--fsdp_parallel") == shards


def test_a_batch_shared_by_jax_keeps_its_size() -> None:
    spec = job("jax", hyperparameters={"batchSize": 48}, options={"batchIsGlobal": True})
    assert (spec.elastic and spec.elastic.batch, elastic_sizes.list_sizes(spec)) == (48, [2, 3, 4])
    plan = plugins.get_framework("jax").plan(on(spec, "n1", "n2", "n3"))
    assert (argument(plan, "--batch_size"), argument(plan, "--gradient_accumulation_steps")) == ("4", "2")
    assert "--batch_is_global" not in plan.nodes[0].command


def test_deepspeed_keeps_train_batch_stage_and_learning_rate() -> None:
    scaled = {"learningRateScaling": "linear", "learningRate": 1e-4}
    spec = job("deepspeed", options={"trainBatchSize": 96}, hyperparameters=scaled)
    assert elastic_sizes.list_sizes(spec) == [2, 3, 4]
    framework = plugins.get_framework("deepspeed")
    full, three = (
        json.loads(str(framework.plan(one).files["ds_config.json"])) for one in (spec, on(spec, "n1", "n2", "n3"))
    )
    assert (full["train_batch_size"], full["train_micro_batch_size_per_gpu"]) == (96, 12)
    assert (three["train_batch_size"], three["train_micro_batch_size_per_gpu"]) == (96, 8)
    assert three["gradient_accumulation_steps"] == 2
    assert three["zero_optimization"] == full["zero_optimization"]
    assert three["optimizer"] == full["optimizer"]


def test_a_custom_script_keeps_its_hyperparameters_and_gets_its_share() -> None:
    spec = job(entrypoint=Entrypoint("train.py"))
    plan = plugins.get_framework("ddp").plan(on(spec, "n1", "n2"))
    assert json.loads(str(plan.nodes[0].env["FERMI_HYPERPARAMETERS"]))["batchSize"] == 8
    assert set(list_values(plan, "FERMI_ACCUMULATION_STEPS")) == {"2"}


def test_a_script_without_a_batch_runs_on_any_size() -> None:
    spec = job(entrypoint=Entrypoint("train.py"), hyperparameters={})
    assert elastic_sizes.list_sizes(spec) == [2, 3, 4]
    assert codes(elastic_sizes.find_warnings(spec)) == [("distributedConfig.elastic", "ELASTIC_BATCH_UNKNOWN")]
    plan = plugins.get_framework("ddp").plan(on(spec, "n1", "n2", "n3"))
    assert set(list_values(plan, "FERMI_FULL_WORLD_SIZE")) == {"8"}
    assert "FERMI_GLOBAL_BATCH_SIZE" not in plan.nodes[0].processes[0].env


ELASTIC = "distributedConfig.elastic"


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (job(high=5), [(f"{ELASTIC}.maxNodes", "ELASTIC_MAX_TOO_LARGE")]),
        (job(low=4, high=3), [(f"{ELASTIC}.minNodes", "ELASTIC_MIN_ABOVE_MAX")]),
        (job("megatron-lm"), [(ELASTIC, "ELASTIC_NOT_OFFERED")]),
        (job(strategy={"tensorParallel": 2, "dataParallel": 4}), []),
        (job("deepspeed", strategy={"tensorParallel": 2, "dataParallel": 4}), [(ELASTIC, "ELASTIC_SPLIT")]),
        (job("megatron-lm", 5, 4, strategy={"tensorParallel": 2}),
         [(f"{ELASTIC}.minNodes", "ELASTIC_MIN_ABOVE_MAX"), (ELASTIC, "ELASTIC_NOT_OFFERED"),
          (ELASTIC, "ELASTIC_SPLIT")]),
        (job(options={"batchShare": "bySpeed"}),
         [("distributedConfig.options.batchShare", "ELASTIC_SHARES_BY_SPEED")]),
        (job("deepspeed", 3), [(f"{ELASTIC}.minNodes", "ELASTIC_BATCH_INDIVISIBLE")]),
        (job("pytorch-fsdp", 3, options={"shardSize": 4}), [(f"{ELASTIC}.minNodes", "ELASTIC_BATCH_INDIVISIBLE")]),
        (job(hyperparameters={"batchSize": "many"}), []),
        (job(low=4), []),
        (job(), []),
    ],
)  # fmt: skip
def test_impossible_elastic_settings_are_refused_with_all_reasons(spec: JobSpec, found: list[Any]) -> None:
    assert codes(elastic_sizes.find_problems(spec)) == found


def test_sizes_excluded_by_a_frameworks_setting_are_left_out() -> None:
    spec = job("pytorch-fsdp", options={"shardSize": 4})
    assert elastic_sizes.list_sizes(spec) == [2, 4]


def test_a_fixed_job_is_unchanged() -> None:
    spec = replace(job(), elastic=None)
    assert (
        elastic_sizes.set_full_size(spec),
        elastic_sizes.list_sizes(spec),
        elastic_sizes.find_problems(spec),
        elastic_sizes.find_warnings(spec),
    ) == (spec, [], [], [])
    assert elastic.build_rank_env(spec) == {}


def test_exported_jobs_do_not_resize() -> None:
    spec = JobSpec("t", "pytorch-ddp", NODES, "n1", elastic=Elastic(2, 4))
    assert elastic.build_rank_env(spec) == {}
    assert plugins.get_framework("ddp").settled(spec) == spec


def test_stored_values_are_read_back() -> None:
    spec = on(job(), "n1", "n3", "n4")
    assert JobSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
