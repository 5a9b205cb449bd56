"""What FSDP refuses, warns of and decides."""

from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fermi import messages
from fermi.frameworks import fsdp
from fermi.jobs.spec import Entrypoint, JobSpec, Node, Plan, Problem, Value
from fermi.planning import plugins, validate
from tests.goldens import job

OPTIONS = "distributedConfig.options"


def codes(found: list[Problem]) -> list[tuple[str, str]]:
    for problem in found:
        for language in ("zh", "en"):
            assert all(messages.render_text(problem.code, language, **problem.params))
    return [(problem.field, problem.code) for problem in found]


def spec(*environments: str, **changes) -> JobSpec:
    return job(*(environments or ("env-001", "env-003")), framework="pytorch-fsdp", **changes)


def over(*nodes: tuple[int, str], **options) -> JobSpec:
    """Nodes of so many GPUs in such a zone."""
    made = [Node(f"n{i}", f"n{i}", zone=zone, gpu_count=gpus, emulated=True) for i, (gpus, zone) in enumerate(nodes)]
    return JobSpec("t", "pytorch-fsdp", tuple(made), "n0", options=options)


def argument(plan: Plan, flag: str) -> Value:
    command = plan.nodes[0].command
    return command[command.index(flag) + 1]


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"options": {"shardSize": 4}}, f"{OPTIONS}.shardSize", "FSDP_MESH_MISMATCH"),
        ({"options": {"sharding": "full", "shardSize": 2}}, f"{OPTIONS}.shardSize", "FSDP_FULL_IS_ALL_RANKS"),
        ({"options": {"sharding": "zero3"}}, f"{OPTIONS}.sharding", "OPTION_INVALID"),
        ({"options": {"shardSize": 0}}, f"{OPTIONS}.shardSize", "OPTION_INVALID"),
        ({"options": {"shardSize": True}}, f"{OPTIONS}.shardSize", "OPTION_INVALID"),
        ({"options": {"mixedPrecision": "fp8"}}, f"{OPTIONS}.mixedPrecision", "OPTION_INVALID"),
        ({"options": {"cpuOffload": "yes"}}, f"{OPTIONS}.cpuOffload", "OPTION_INVALID"),
        ({"options": {"bucketCapMb": 25}}, f"{OPTIONS}.bucketCapMb", "OPTION_UNKNOWN"),
        (
            {"options": {"mixedPrecision": "bfloat16"}, "hyperparameters": {"dtype": "float16"}},
            f"{OPTIONS}.mixedPrecision",
            "PRECISIONS_DIFFER",
        ),
    ],
)
def test_a_broken_rule_is_named_with_its_field(changes, field, code):
    assert codes(validate.find_problems(spec(**changes))) == [(field, code)]


def test_an_invalid_mesh_gets_the_nearest_valid_one():
    [problem] = fsdp.problems(spec("env-001", "env-003", "env-005", options={"shardSize": 8}))
    assert problem.params == {"found": 8, "worldSize": 14, "nearest": 7, "allowed": "1, 2, 7, 14"}


def test_a_custom_script_may_use_any_dtype():
    own = spec(entrypoint=Entrypoint("a.py"), hyperparameters={"dtype": [1]}, options={"mixedPrecision": "bfloat16"})
    assert validate.find_problems(own) == []
    assert yaml.safe_load(str(fsdp.plan(own).files["fsdp_config.yaml"]))["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("job", "size", "warned"),
    [
        (over((8, "a")), 8, []),
        (over((2, "a"), (2, "a")), 4, []),
        (over((2, "a"), (2, "a"), sharding="hybrid"), 2, []),
        (over((2, "a"), (4, "b"), (8, "c")), 2, ["FSDP_HYBRID_CHOSEN"]),
        (over((2, "a"), (4, "a"), (6, "b")), 6, ["FSDP_HYBRID_CHOSEN"]),
        (over((2, "a"), (4, "b"), (2, "a")), 2, ["FSDP_HYBRID_CHOSEN"]),  # the zone's nodes are no neighbours
        (over((1, "a"), (2, "b")), 3, []),  # hybrid would shard nothing
        (over((2, "a"), (2, "b"), sharding="full"), 4, ["FSDP_SHARDS_CROSS_ZONES"]),
        (over((2, "a"), (2, "b"), shardSize=4), 4, ["FSDP_SHARDS_CROSS_ZONES"]),
        (over((2, "a"), (2, "b"), shardSize=1), 1, ["FSDP_NOTHING_SHARDED"]),
        (over((1, "a"), (2, "a"), sharding="hybrid"), 1, ["FSDP_NOTHING_SHARDED"]),
        (over((1, "a")), 1, []),
    ],
)
def test_models_are_sharded_within_zones_and_nodes(job, size, warned):
    assert [code for _, code in codes(plugins.get_framework("pytorch-fsdp").warnings(job))] == warned
    plan = fsdp.plan(job)
    assert argument(plan, "--shard_size") == str(size)
    mesh = yaml.safe_load(str(plan.files["fsdp_config.yaml"]))["mesh"]
    assert mesh == {"replicate": job.world_size // size, "shard": size}


def test_an_unrendered_strategy_is_a_warning():
    asked = spec(strategy={"tensorParallel": 2}, options={"sharding": "full", "shardSize": 6})
    assert ("distributedConfig.strategy", "STRATEGY_NOT_RENDERED") in codes(
        plugins.get_framework("pytorch-fsdp").warnings(asked)
    )


@pytest.mark.parametrize(
    ("environments", "changes", "dtype"),
    [
        (("env-001", "env-003"), {"emulated": False}, "bfloat16"),
        (("env-001", "env-002"), {"emulated": False}, "float16"),  # a V100 among them
        (("env-001", "env-003"), {}, "float32"),
        (("env-001", "env-003"), {"options": {"mixedPrecision": "float16"}}, "float16"),
        (("env-001", "env-003"), {"hyperparameters": {"dtype": "bfloat16"}}, "bfloat16"),
    ],
)
def test_precision_is_the_users_choice_or_that_of_the_weakest_gpu(environments, changes, dtype):
    assert argument(fsdp.plan(spec(*environments, **changes)), "--dtype") == dtype


def test_options_become_arguments_of_the_recipe():
    chosen = {"cpuOffload": True, "activationCheckpointing": True, "reshardAfterForward": False}
    command = fsdp.plan(spec(options=chosen)).nodes[0].command
    flags = {"--cpu_offload", "--activation_checkpointing", "--no_reshard_after_forward"}
    assert flags <= set(command)
    assert not flags & set(fsdp.plan(spec()).nodes[0].command)


def test_it_is_found_by_its_short_name():
    assert plugins.get_framework("fsdp") is plugins.get_framework("pytorch-fsdp")


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "x", []])
choices = st.fixed_dictionaries(
    {},
    optional={
        "sharding": st.sampled_from(["auto", "full", "hybrid"]) | anything,
        "shardSize": st.integers(1, 16) | anything,
        "mixedPrecision": st.sampled_from(["auto", "bfloat16", "float32"]) | anything,
        "cpuOffload": st.booleans() | anything,
        "unknown": anything,
    },
)
some_nodes = st.lists(st.tuples(st.integers(0, 8), st.sampled_from("abc")), min_size=1, max_size=5)


@given(some_nodes, choices, st.dictionaries(st.sampled_from(["dtype", "heads"]), anything))
def test_rules_never_raise_and_a_spec_without_problems_has_a_plan_that_keeps_them(nodes, options, hyperparameters):
    spec = replace(over(*nodes, **options), hyperparameters=hyperparameters)
    plugins.get_framework("pytorch-fsdp").warnings(spec)
    if not validate.find_problems(spec):
        plan = fsdp.plan(spec)
        assert [p.rank for node in plan.nodes for p in node.processes] == list(range(plan.world_size))
        config = yaml.safe_load(str(plan.files["fsdp_config.yaml"]))
        assert config["mesh"]["replicate"] * config["mesh"]["shard"] == plan.world_size
        assert fsdp.problems(replace(spec, options={**options, "shardSize": config["mesh"]["shard"]})) == []
