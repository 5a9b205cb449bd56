"""Every general rule of a launch, broken once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi import messages
from fermi.jobs.errors import UnknownNameError
from fermi.jobs.spec import Entrypoint, JobSpec
from fermi.planning import plugins, validate
from tests.goldens import job


def found(spec: JobSpec) -> list[tuple[str, str]]:
    problems = validate.find_problems(spec)
    for problem in problems:
        for language in ("zh", "en"):
            assert all(messages.render_text(problem.code, language, **problem.params))
    return [(problem.field, problem.code) for problem in problems]


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"env": {"RANK": "1"}}, "env.RANK", "ENV_RESERVED"),
        ({"env": {"PET_NNODES": "1"}}, "env.PET_NNODES", "ENV_RESERVED"),
        ({"env": {"TORCHELASTIC_RUN_ID": "1"}}, "env.TORCHELASTIC_RUN_ID", "ENV_RESERVED"),
        ({"env": {"HOROVOD_RANK": "1"}}, "env.HOROVOD_RANK", "ENV_RESERVED"),
        ({"env": {"JAX_COORDINATOR_ADDRESS": "x"}}, "env.JAX_COORDINATOR_ADDRESS", "ENV_RESERVED"),
        ({"env": {"FERMI_TASK_ID": "x"}}, "env.FERMI_TASK_ID", "ENV_RESERVED"),
        ({"env": {"A-B": "1"}}, "env.A-B", "ENV_NAME_INVALID"),
        ({"env": {"": "1"}}, "env.", "ENV_NAME_INVALID"),
        ({"master_port": 80}, "distributedConfig.masterPort", "PORT_OUT_OF_RANGE"),
        ({"master_port": 65536}, "distributedConfig.masterPort", "PORT_OUT_OF_RANGE"),
        ({"backend": "mpi"}, "distributedConfig.backend", "BACKEND_UNKNOWN"),
        ({"recipe": "bert"}, "modelId", "RECIPE_UNKNOWN"),
        ({"hyperparameters": {"batchsize": 8}}, "hyperparameters.batchsize", "HYPERPARAMETER_UNKNOWN"),
        ({"hyperparameters": {"batchSize": 0}}, "hyperparameters.batchSize", "HYPERPARAMETER_INVALID"),
        ({"hyperparameters": {"batchSize": True}}, "hyperparameters.batchSize", "HYPERPARAMETER_INVALID"),
        ({"hyperparameters": {"batchSize": "8"}}, "hyperparameters.batchSize", "HYPERPARAMETER_INVALID"),
        ({"hyperparameters": {"dtype": "int8"}}, "hyperparameters.dtype", "HYPERPARAMETER_INVALID"),
        ({"hyperparameters": {"learningRate": float("nan")}}, "hyperparameters.learningRate", "HYPERPARAMETER_INVALID"),
        ({"hyperparameters": {"useWandb": 1}}, "hyperparameters.useWandb", "HYPERPARAMETER_INVALID"),
        ({"hyperparameters": {"wandbProject": ""}}, "hyperparameters.wandbProject", "HYPERPARAMETER_INVALID"),
        (
            {"hyperparameters": {"hiddenSize": 65, "heads": 4}},
            "hyperparameters.hiddenSize",
            "HIDDEN_NOT_DIVISIBLE_BY_HEADS",
        ),
        ({"options": {"zero": 1}}, "distributedConfig.options.zero", "OPTION_UNKNOWN"),
        ({"options": {"staticGraph": "yes"}}, "distributedConfig.options.staticGraph", "OPTION_INVALID"),
        ({"options": {"bucketCapMb": 0}}, "distributedConfig.options.bucketCapMb", "OPTION_INVALID"),
    ],
)
def test_a_broken_rule_is_named_with_its_field(changes, field, code):
    assert found(job("env-001", "env-003", **changes)) == [(field, code)]


def test_all_broken_rules_are_reported_together():
    spec = job("env-001", env={"RANK": "1", "OK": "1"}, master_port=1, hyperparameters={"a": 1, "batchSize": -1})
    assert len(found(spec)) == 4


def test_a_custom_script_takes_any_hyperparameter():
    spec = job("env-001", entrypoint=Entrypoint("train.py"), hyperparameters={"anything": [1, 2]})
    assert found(spec) == []


def test_an_unknown_framework_names_the_known_ones():
    with pytest.raises(UnknownNameError) as error:
        plugins.get_framework("caffe")
    assert "pytorch-ddp" in str(error.value.params["allowed"])


def test_a_strategy_that_ddp_does_not_render_is_a_warning():
    strategy = {"dataParallel": 2, "pipelineParallel": 4, "tensorParallel": 8}
    ddp = plugins.get_framework("ddp")
    assert [w.code for w in ddp.warnings(job("env-001", "env-003", "env-005", strategy=strategy))] == [
        "STRATEGY_NOT_RENDERED"
    ]
    assert ddp.warnings(job("env-001", "env-003", strategy={"dataParallel": 6, "tensorParallel": 1})) == []


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
names = st.sampled_from(["batchSize", "hiddenSize", "heads", "dtype", "learningRate", "staticGraph", "bucketCapMb"])


@given(st.dictionaries(names | st.text(max_size=6), anything), st.dictionaries(names, anything), st.integers())
def test_rules_never_raise_and_a_spec_without_problems_has_a_plan(hyperparameters, options, port):
    spec = job("env-001", "env-003", hyperparameters=hyperparameters, options=options, master_port=port)
    if not validate.find_problems(spec):
        plan = plugins.get_framework("ddp").plan(spec)
        assert [p.rank for node in plan.nodes for p in node.processes] == list(range(plan.world_size))
