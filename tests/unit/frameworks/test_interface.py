"""What a framework may leave out, what it must have, and what the platform knows of it without knowing its name."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from fermi import export, preflight
from fermi.frameworks import texts
from fermi.frameworks._planning import build_plan
from fermi.frameworks.base import Framework, Info
from fermi.jobs import recipes
from fermi.jobs.spec import JobSpec, Plan
from fermi.planning import plugins, variables
from fermi.planning.recommend import recommend_frameworks
from fermi.preflight import verdict
from fermi.train import preflight_node
from tests.goldens import job


def plan(spec: JobSpec) -> Plan:
    return build_plan(spec, recipes.build_command(spec, "some.trainer", {}), files={}, preload=())


def module(**parts: Any) -> ModuleType:
    made = ModuleType("some_framework")
    made.__spec__ = ModuleSpec("some_framework", None)  # texts are looked for beside it
    vars(made).update(parts)
    return made


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Framework]:
    """Adds a framework `new` that has nothing but what it must have."""

    def add(**info: Any) -> Framework:
        monkeypatch.setitem(plugins.FRAMEWORKS, "new", "some_framework")
        monkeypatch.setitem(sys.modules, "some_framework", module(INFO=Info(label="New", **info), plan=plan))
        return plugins.get_framework("new")

    return add


def test_a_minimal_framework_has_data_parallelism_without_options(register: Callable[..., Framework]) -> None:
    smallest = register()
    spec = job("env-001", "env-003", framework="new", options={"made": "up"})
    assert [problem.code for problem in smallest.problems(spec)] == ["OPTION_UNKNOWN"]
    assert smallest.propose(spec).strategy == {"dataParallel": 6}
    split = replace(spec, strategy={"tensorParallel": 2})
    assert [problem.code for problem in smallest.warnings(split)] == ["STRATEGY_NOT_RENDERED"]
    assert texts.get_description(smallest, "en") == ""


def test_a_framework_that_splits_the_model_proposes_a_split_or_none() -> None:
    split = Framework("split", module(INFO=Info(label="Split", parallelism=("tensor", "data")), plan=plan))
    spec = job("env-001", strategy={"tensorParallel": 2})
    assert split.warnings(spec) == []
    assert split.propose(replace(spec, strategy={})).strategy == {}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, "it has no `INFO`, an Info of fermi.frameworks.base; it has no `plan`, a function"),
        ({}, "It has none of a framework's names."),
        ({"INFO": Info(label="X"), "problems": plan}, "it has no `plan`, a function that makes a Plan of a JobSpec. "),
        ({"INFO": Info(label="X"), "problems": plan}, "It has `INFO`, `problems`."),
        ({"INFO": {"label": "X"}, "plan": plan}, "its `INFO` is dict {'label': 'X'}, not an Info of"),
        ({"INFO": Info(label="X"), "plan": "plan"}, "its `plan` is str 'plan', not a function"),
        ({"INFO": Info(label="X"), "plan": plan, "OPTIONS": {}}, "its `OPTIONS` is dict {}, not a JSON Schema"),
        ({"INFO": Info(label="X"), "plan": plan, "PRELOAD": "x"}, "its `PRELOAD` is str 'x', not names of modules"),
    ],
)  # fmt: skip
def test_a_missing_part_is_named_to_the_author(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as refused:
        Framework("x", module(**parts))
    assert "some_framework cannot be the framework x: " in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", plugins.FRAMEWORKS)
def test_variables_of_a_framework_are_reserved_or_overridable(name: str) -> None:
    """Where both set a variable, nothing is overridden in silence."""
    spec = job("env-001", "env-003", framework=name, emulated=False)
    framework = plugins.get_framework(name)
    ours = {key for at in framework.plan(spec).nodes for process in at.processes for key in (*at.env, *process.env)}
    theirs = {key: "1" for key in ours if not variables.is_reserved(key)}
    for at in framework.plan(replace(spec, env=theirs)).nodes:
        for process in at.processes:
            assert {key: {**at.env, **process.env}[key] for key in theirs} == theirs


def test_variables_reserved_by_one_framework_are_refused_for_all(register: Callable[..., Framework]) -> None:
    register(reserved=("SMALL_.*",))
    assert [problem.code for problem in variables.find_problems({"SMALL_RANK": "1", "SMALLER": "1"})] == [
        "ENV_RESERVED"
    ]


def test_a_new_framework_is_recommended_for_its_declared_sizes(register: Callable[..., Framework]) -> None:
    register(parallelism=("data", "sharded"), model_size=(2 * 10**9, 20 * 10**9))

    def first_reasons(parameters: int) -> dict[str, str]:
        spec = job(
            "env-001", "env-003", "env-005", hyperparameters=recipes.choose_typical_sizes(parameters), emulated=False
        )
        good, bad = recommend_frameworks(replace(spec, model_parameters=parameters))
        return {one.framework: one.reasons[0].code for one in [*good, *bad]}

    assert first_reasons(3 * 10**9)["new"] == "RECOMMENDED_BY_SIZE"
    assert first_reasons(30 * 10**9)["new"] == "RECOMMENDED_BY_MEMORY"
    assert first_reasons(10**8)["new"] == "REJECTED_BY_SIZE"


def test_a_framework_on_another_library_is_handled_by_its_declarations(
    register: Callable[..., Framework],
) -> None:
    register(stack="paddle", launcher="")
    assert plugins.list_stacks() == ["torch", "jax", "paddle"]
    spec = job("env-001", "env-003", framework="new")
    assert [problem.code for problem in export.find_problems(spec, "torchrun")] == ["TORCHRUN_NOT_FOR_FRAMEWORK"]
    readme = export.render_files(spec, "shell", "en")["README.md"]
    assert "Out of GPU memory" not in readme, "nothing is known of how this library uses memory"
    test = preflight.plan(replace(spec, options={"level": "quick", "framework": "new"}))
    assert json.loads(str(test.nodes[0].env["FERMI_PREFLIGHT"]))["stacks"] == ["paddle"]
    _, bad = recommend_frameworks(replace(spec, model_parameters=10**8))
    assert {one.framework: one.reasons[0].code for one in bad}["new"] == "REJECTED_OTHER_LIBRARY"


def test_the_preflight_test_checks_that_any_library_exists(register: Callable[..., Framework]) -> None:
    with preflight_node.StackProbe(["numpy", "no-such-library"]) as child:
        found = child.devices(60)
    assert found["numpy"]["version"]
    assert (found["no-such-library"], found["torch"]) == (None, None)

    def levels(stack: str) -> list[tuple[str, str]]:
        register(stack=stack)
        facts = [{"preflight": "devices", "rank": 0, **found}]
        [node] = verdict.build_report([verdict.NodeUnderTest(0, "env-0", "n0", 0)], facts, "quick", "new")["nodes"]
        return [(one["level"], one["code"]) for one in node["findings"] if one["check"] == "devices"]

    assert levels("numpy") == [("pass", "PREFLIGHT_DEVICES_OK")]
    assert levels("no-such-library") == [("fail", "PREFLIGHT_STACK_ABSENT")]


def test_a_platform_stage_needs_only_a_plan() -> None:
    stage = plugins.get_planner("preflight")
    assert stage.plan(job("env-001", framework="preflight")).world_size == 1
