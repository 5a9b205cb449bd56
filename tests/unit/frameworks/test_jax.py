"""What is rendered for JAX, and every rule of it broken once."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi import messages
from fermi.jobs.spec import Entrypoint, JobSpec, Late, Plan, Problem
from fermi.planning import plugins, validate
from tests.goldens import ENVIRONMENTS, job

jax = plugins.get_framework("jax")
ALL = ("env-001", "env-003", "env-005")


def spec_of(*environments: str, **changes) -> JobSpec:
    return job(*(environments or ALL), framework="jax", **changes)


def has_text(problems: list[Problem]) -> list[Problem]:
    for problem in problems:
        for language in ("zh", "en"):
            assert all(messages.render_text(problem.code, language, **problem.params))
    return problems


def flags(plan: Plan) -> dict[str, str]:
    words = [str(word) for word in plan.nodes[0].command[4:]]
    return {word: following for word, following in zip(words, [*words[1:], ""], strict=True) if word.startswith("--")}


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"options": {"zero": 1}}, "distributedConfig.options.zero", "OPTION_UNKNOWN"),
        ({"options": {"memoryFraction": 0}}, "distributedConfig.options.memoryFraction", "OPTION_INVALID"),
        ({"options": {"memoryFraction": 1.5}}, "distributedConfig.options.memoryFraction", "OPTION_INVALID"),
        ({"options": {"preallocate": "no"}}, "distributedConfig.options.preallocate", "OPTION_INVALID"),
        ({"options": {"heartbeatTimeoutSeconds": 0}}, "distributedConfig.options.heartbeatTimeoutSeconds",
         "OPTION_INVALID"),
        ({"options": {"initializationTimeoutSeconds": 1.5}}, "distributedConfig.options.initializationTimeoutSeconds",
         "OPTION_INVALID"),
        ({"env": {"JAX_COORDINATOR_ADDRESS": "gn6:1"}}, "env.JAX_COORDINATOR_ADDRESS", "ENV_RESERVED"),
        ({"env": {"JAX_LOCAL_DEVICE_IDS": "0,1"}}, "env.JAX_LOCAL_DEVICE_IDS", "ENV_RESERVED"),
        ({"env": {"JAX_NUM_CPU_DEVICES": "2"}}, "env.JAX_NUM_CPU_DEVICES", "JAX_ONE_DEVICE_PER_PROCESS"),
        ({"env": {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}}, "env.XLA_FLAGS",
         "JAX_ONE_DEVICE_PER_PROCESS"),
        ({"hyperparameters": {"dtype": "float16"}}, "hyperparameters.dtype", "DTYPE_NOT_OFFERED"),
        ({"hyperparameters": {"batchSize": 64}, "options": {"batchIsGlobal": True}}, "hyperparameters.batchSize",
         "BATCH_NOT_SHAREABLE"),
        ({"hyperparameters": {}, "options": {"batchIsGlobal": True}}, "hyperparameters.batchSize",
         "BATCH_NOT_SHAREABLE"),
        ({"options": {"remat": "full"}}, "distributedConfig.options.remat", "OPTION_INVALID"),
        ({"options": {"prefetch": -1}}, "distributedConfig.options.prefetch", "OPTION_INVALID"),
        ({"strategy": {"fsdpParallel": 0}}, "distributedConfig.strategy.fsdpParallel", "STRATEGY_INVALID"),
        ({"strategy": {"fsdpParallel": 4}}, "distributedConfig.strategy.fsdpParallel", "JAX_MESH_MISMATCH"),
        ({"strategy": {"dataParallel": 4}}, "distributedConfig.strategy.dataParallel", "JAX_MESH_MISMATCH"),
        ({"strategy": {"dataParallel": 2, "fsdpParallel": 2}}, "distributedConfig.strategy.dataParallel",
         "JAX_MESH_MISMATCH"),
        ({"env": {"JAX_PLATFORM_NAME": "gpu"}}, "env.JAX_PLATFORM_NAME", "JAX_PLATFORM_ABSENT"),
        ({"env": {"JAX_PLATFORMS": "cuda,cpu"}}, "env.JAX_PLATFORMS", "JAX_PLATFORM_ABSENT"),
        ({"env": {"JAX_PLATFORMS": "tpu"}}, "env.JAX_PLATFORMS", "JAX_PLATFORM_UNKNOWN"),
        ({"env": {"JAX_PLATFORM_NAME": "gpu", "JAX_PLATFORMS": "cpu"}, "emulated": False}, "env.JAX_PLATFORM_NAME",
         "JAX_PLATFORMS_DIFFER"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named_with_its_field(changes, field, code):
    found = has_text(validate.find_problems(spec_of(**changes)))
    assert [(problem.field, problem.code) for problem in found] == [(field, code)]


def test_an_indivisible_batch_comes_with_the_nearest_divisible_ones():
    options = {"batchIsGlobal": True}
    [problem] = validate.find_problems(spec_of(hyperparameters={"batchSize": 64}, options=options))
    assert problem.params["nearest"] == (56, 70)
    [problem] = validate.find_problems(spec_of(hyperparameters={"batchSize": 8}, options=options))
    assert problem.params["nearest"] == (14,)
    assert validate.find_problems(spec_of(hyperparameters={"batchSize": 70}, options=options)) == []


def test_a_custom_script_may_compute_and_share_freely():
    own = {"entrypoint": Entrypoint("train.py"), "hyperparameters": {"dtype": "float16", "batchSize": 3}}
    assert validate.find_problems(spec_of(options={"batchIsGlobal": True}, **own)) == []


def test_another_backend_or_split_is_a_warning():
    strategy = {"dataParallel": 2, "pipelineParallel": 4, "tensorParallel": 8}
    found = has_text(jax.warnings(spec_of(backend="nccl", strategy=strategy)))
    assert [problem.code for problem in found] == ["STRATEGY_NOT_RENDERED", "JAX_BACKEND_FIXED"]
    assert [w.code for w in jax.warnings(spec_of(backend="gloo", emulated=False))] == ["JAX_BACKEND_FIXED"]
    assert jax.warnings(spec_of(backend="gloo", strategy={"dataParallel": 14})) == []
    found = has_text(jax.warnings(spec_of(strategy={"dataParallel": 14}, hyperparameters={"numWorkers": 2})))
    assert [problem.code for problem in found] == ["JAX_LOADS_WITH_A_THREAD"]
    found = jax.warnings(spec_of(strategy={"fsdpParallel": 2, "tensorParallel": 7}))
    assert [problem.code for problem in found] == ["STRATEGY_NOT_RENDERED"]


BIG = {"layers": 40, "hiddenSize": 5120, "heads": 40, "sequenceLength": 2048}  # 13B: 190 GiB of state


@pytest.mark.parametrize(
    ("strategy", "hyperparameters", "mesh", "proposed", "reasons", "warned"),
    [
        ({}, {}, (14, 1), {"dataParallel": 14}, ["PROPOSED_DATA_PARALLEL"], []),
        ({"dataParallel": 14}, {}, (14, 1), {}, [], []),
        ({"dataParallel": 7}, {}, (7, 2), {"fsdpParallel": 2}, ["PROPOSED_JAX_REST"], []),
        ({"fsdpParallel": 7}, {}, (2, 7), {"dataParallel": 2}, ["PROPOSED_JAX_REST"], ["JAX_SHARDS_CROSS_ZONES"]),
        ({"dataParallel": 1, "fsdpParallel": 14}, {}, (1, 14), {}, [], ["JAX_SHARDS_CROSS_ZONES"]),
        ({}, BIG, (1, 14), {"dataParallel": 1, "fsdpParallel": 14}, ["PROPOSED_JAX_FSDP"], []),
        ({"dataParallel": 14}, BIG, (14, 1), {}, [], ["JAX_STATE_TOO_LARGE"]),
        ({"dataParallel": 2, "pipelineParallel": 4, "tensorParallel": 8}, {}, (14, 1), {}, [],
         ["STRATEGY_NOT_RENDERED"]),
    ],
)  # fmt: skip
def test_the_mesh_covers_all_processes_and_empty_values_are_proposed(
    strategy, hyperparameters, mesh, proposed, reasons, warned
):
    spec = spec_of(strategy=strategy, hyperparameters=hyperparameters, emulated=True)
    assert validate.find_problems(spec) == []
    proposal = jax.propose(spec)
    assert (dict(proposal.strategy), [reason.code for reason in proposal.reasons]) == (proposed, reasons)
    assert all(
        messages.render_text(reason.code, lang, **reason.params)[0]
        for reason in proposal.reasons
        for lang in ("zh", "en")
    )
    assert [problem.code for problem in has_text(jax.warnings(spec))] == warned
    plan = jax.plan(spec)
    assert json.loads(str(plan.nodes[0].env["FERMI_JAX_MESH"])) == dict(zip(("data", "fsdp"), mesh, strict=True))
    assert flags(plan)["--fsdp_parallel"] == str(mesh[1])


def test_shards_across_zones_give_a_warning_where_smaller_groups_fit():
    a, b = (replace(ENVIRONMENTS[name], zone=name) for name in ("env-001", "env-002"))  # two GPUs each
    spec = replace(spec_of("env-001", "env-002", strategy={"fsdpParallel": 4}), nodes=(a, b))
    [warning] = has_text(jax.warnings(spec))
    assert (warning.code, warning.params) == ("JAX_SHARDS_CROSS_ZONES", {"size": 4, "better": 2})
    assert jax.warnings(replace(spec, strategy={"fsdpParallel": 2})) == []


@pytest.mark.parametrize(
    ("env", "emulated", "name", "platforms"),
    [
        ({}, False, "gpu", "cuda"),
        ({"JAX_PLATFORM_NAME": "gpu"}, False, "gpu", "cuda"),
        ({"JAX_PLATFORM_NAME": "gpu", "JAX_PLATFORMS": "cuda,cpu"}, False, "gpu", "cuda,cpu"),
        ({"JAX_PLATFORM_NAME": "CPU"}, False, "CPU", "cpu"),
        ({"JAX_PLATFORMS": "cpu"}, False, "cpu", "cpu"),
        ({}, True, "cpu", "cpu"),
        ({"JAX_PLATFORM_NAME": "cpu"}, True, "cpu", "cpu"),
    ],
)
def test_both_jax_platform_variables_are_set_equally_on_all_ranks(env, emulated, name, platforms):
    spec = spec_of("env-003", env=env, emulated=emulated)
    assert validate.find_problems(spec) == []
    plan = jax.plan(spec)
    told = plan.nodes[0].env
    assert (told["JAX_PLATFORM_NAME"], told["JAX_PLATFORMS"]) == (name, platforms)
    on_gpu = platforms.startswith("cuda")
    assert flags(plan)["--dtype"] == ("bfloat16" if on_gpu else "float32")
    assert ("JAX_CPU_COLLECTIVES_IMPLEMENTATION" in told) is not on_gpu
    assert all(("JAX_LOCAL_DEVICE_IDS" in process.env) is on_gpu for process in plan.nodes[0].processes)


def test_each_gpu_process_sees_its_own_device_and_the_documents_memory_settings():
    plan = jax.plan(spec_of("env-003", emulated=False))
    [node] = plan.nodes
    assert [process.env["JAX_LOCAL_DEVICE_IDS"] for process in node.processes] == ["0", "1", "2", "3"]
    assert [(process.env["RANK"], process.env["LOCAL_RANK"]) for process in node.processes][3] == ("3", "3")
    assert node.env["JAX_COORDINATOR_ADDRESS"] == (Late.HEAD_HOST, ":29500")
    assert node.env["JAX_PLATFORMS"] == "cuda"
    assert "XLA_FLAGS" not in node.env
    memory = {name: value for name, value in node.env.items() if name.startswith("XLA_PYTHON_CLIENT")}
    assert memory == {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9"}
    assert flags(plan)["--dtype"] == "bfloat16"


def test_one_emulated_node_moves_all_to_the_cpu():
    nodes = (replace(ENVIRONMENTS["env-001"], emulated=False), ENVIRONMENTS["env-003"])
    plan = jax.plan(replace(spec_of(), nodes=nodes))
    for node in plan.nodes:
        assert node.env["JAX_PLATFORMS"] == "cpu"
        assert node.env["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] == "gloo"
        assert "--xla_force_host_platform_device_count=1" in node.env["XLA_FLAGS"]
        assert not any("JAX_LOCAL_DEVICE_IDS" in process.env for process in node.processes)


def test_gpus_without_bfloat16_compute_in_float32():
    assert flags(jax.plan(spec_of("env-001", "env-002", emulated=False)))["--dtype"] == "float32"


def test_user_settings_override_our_defaults():
    env = {"XLA_FLAGS": "--xla_dump_to=/tmp", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5", "JAX_PLATFORMS": "cpu"}
    spec = spec_of(env=env, options={"preallocate": True, "heartbeatTimeoutSeconds": 10})
    assert validate.find_problems(spec) == []
    plan = jax.plan(spec)
    assert env.items() <= plan.nodes[0].env.items()
    assert plan.nodes[0].env["XLA_PYTHON_CLIENT_PREALLOCATE"] == "true"
    assert (flags(plan)["--heartbeat_timeout_seconds"], flags(plan)["--initialization_timeout_seconds"]) == (
        "10",
        "300",
    )


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
values = anything | st.integers(1, 200) | st.sampled_from(["auto", "float16", "bfloat16", "float32"])
hyperparameters = st.dictionaries(st.sampled_from(["batchSize", "dtype", "learningRate", "seed"]), values)
options = st.dictionaries(st.sampled_from(list(jax.options["properties"])) | st.text(max_size=4), values)
variables = st.dictionaries(
    st.sampled_from(["XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "JAX_PLATFORMS", "JAX_PLATFORM_NAME"]),
    st.sampled_from(
        [
            "",
            "1",
            "2",
            "cpu",
            "gpu",
            "cuda,cpu",
            *(f"--xla_force_host_platform_device_count={count}" for count in ("", 1, 2)),
        ]
    ),
)
nodes = st.lists(st.sampled_from(sorted(ENVIRONMENTS)), min_size=1, unique=True)


degrees = st.sampled_from(["dataParallel", "fsdpParallel", "tensorParallel"])
strategies = st.dictionaries(degrees, st.sampled_from([1, 2, 4, 7, 14]) | values, max_size=2)


@given(nodes, st.booleans(), hyperparameters, options, variables, strategies)
def test_rules_never_raise_and_a_plan_of_a_spec_without_problems_keeps_them(
    environments, emulated, hyperparameters, options, env, strategy
):
    spec = spec_of(*environments, emulated=emulated, hyperparameters=hyperparameters, options=options, env=env)
    spec = replace(spec, strategy=strategy)
    jax.propose(spec)
    has_text(jax.warnings(spec))
    if has_text(validate.find_problems(spec)):
        return
    plan = jax.plan(spec)
    processes = [process for node in plan.nodes for process in node.processes]
    assert [process.rank for process in processes] == list(range(plan.world_size))
    assert {node.env["WORLD_SIZE"] for node in plan.nodes} == {str(plan.world_size)}
    assert len({node.env["JAX_COORDINATOR_ADDRESS"] for node in plan.nodes}) == 1
    for node in plan.nodes:
        assert "count=2" not in str(node.env.get("XLA_FLAGS"))
        assert node.env.get("JAX_NUM_CPU_DEVICES") in (None, "1")
        told = json.loads(str(node.env["FERMI_HYPERPARAMETERS"]))
        if options.get("batchIsGlobal"):
            assert told.get("batchSize", 8) % plan.world_size == 0
    assert flags(plan)["--dtype"] in ("bfloat16", "float32")
    mesh = json.loads(str(plan.nodes[0].env["FERMI_JAX_MESH"]))
    assert mesh["data"] * mesh["fsdp"] == plan.world_size


def test_imports_before_the_fork_start_no_thread_and_do_not_initialize_jax():
    """jax reads its JAX_ variables when it is imported; threads do not survive a fork."""
    look = "print('jax' in sys.modules, 'torch' in sys.modules, len(os.listdir('/proc/self/task')))"
    program = f"import os, sys, {', '.join(jax.preload)}; {look}; import fermi.train.train_jax; {look}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    said = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[:2] == ["False False 1", "True False 1"]
