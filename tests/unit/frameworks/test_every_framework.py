"""What holds for every framework of the registry, whatever comes in."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi import messages
from fermi.jobs import options as schemas
from fermi.jobs import recipes
from fermi.jobs.spec import Entrypoint, JobSpec, Node, Plan, Problem, ResumeRule
from fermi.planning import plugins, validate

FRAMEWORKS = sorted(plugins.FRAMEWORKS)


def texts(problem: Problem) -> list[str]:
    """In Chinese and in English; an error where a parameter is missing."""
    return ["\n".join(messages.render_text(problem.code, lang, **problem.params)) for lang in messages.LANGUAGES]


# Anything goes in --------------------------------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
STRATEGY = ["dataParallel", "tensorParallel", "pipelineParallel", "contextParallel", "expertParallel"]
VARIABLES = ["NCCL_DEBUG", "RANK", "XLA_FLAGS", "9", "GLOO_SOCKET_IFNAME", "TORCH_NCCL_ASYNC_ERROR_HANDLING"]
counts = st.integers(1, 64) | st.sampled_from([2, 4, 7, 8, 14, 56, 1 << 40])

node = st.builds(
    Node, id=st.uuids().map(str), name=st.text("abc-", max_size=5), zone=st.sampled_from(["a", "b", ""]),
    gpu_type=st.sampled_from(["A100", "V100", "H200", "T4", "", "X9000"]), gpu_count=st.integers(0, 9),
    emulated=st.booleans(), memory_gb=st.integers(1, 2000),
    network=st.fixed_dictionaries(
        {}, optional={"interface": st.just("eth0"), "infiniband": st.lists(st.just("mlx5_0"), max_size=1)}
    ),
)  # fmt: skip
nodes = st.lists(node, min_size=1, max_size=4, unique_by=lambda one: one.id).map(tuple)


def plausible(rule: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Mostly what the rule of an option allows."""
    if "enum" in rule:
        return st.sampled_from(rule["enum"]) | anything
    kinds = {"boolean": st.booleans(), "number": st.floats(0, 1), "object": st.just({})}
    return kinds.get(rule.get("type", ""), counts) | anything


def options_of(framework: str) -> st.SearchStrategy[dict[str, Any]]:
    rules = plugins.get_framework(framework).options["properties"]
    names = st.lists(st.sampled_from([*rules, "unknown"]), max_size=4, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({key: plausible(rules.get(key, {})) for key in chosen}))


hyperparameters = st.dictionaries(
    st.sampled_from([*recipes.GPT, "unknown"]),
    counts | st.sampled_from(["auto", "float16", "bfloat16", "float32", "linear"]) | anything,
    max_size=4,
)


def jobs_of(framework: str) -> st.SearchStrategy[JobSpec]:
    made = st.builds(
        JobSpec, task_id=st.just("task"), framework=st.just(framework), nodes=nodes, master=st.just(""),
        entrypoint=st.none() | st.just(Entrypoint("train.py")), hyperparameters=hyperparameters,
        strategy=st.dictionaries(st.sampled_from(STRATEGY), counts, max_size=3), options=options_of(framework),
        env=st.dictionaries(st.sampled_from(VARIABLES), st.text("ab1", max_size=5), max_size=2),
        model_parameters=st.none() | st.integers(1, 10**18),
    )  # fmt: skip
    return made.map(lambda job: replace(job, master=job.nodes[0].id))


def without_what_is_refused(job: JobSpec) -> JobSpec:
    """Its framework may still refuse these nodes, or the model's very size."""
    for _ in range(20):
        for problem in validate.find_problems(job):
            path = problem.field.removeprefix("distributedConfig.").split(".")
            if path[0] in ("options", "strategy", "hyperparameters", "env"):
                kept = {key: value for key, value in getattr(job, path[0]).items() if key not in path[1:2]}
                job = replace(job, **{path[0]: kept if path[1:] else {}})
    return job


def keeps_the_rules(job: JobSpec, plan: Plan) -> None:
    processes = [process for at in plan.nodes for process in at.processes]
    assert [process.rank for process in processes] == list(range(job.world_size))
    assert {at.env["WORLD_SIZE"] for at in plan.nodes} == {str(job.world_size)}
    for at in plan.nodes:
        for process in at.processes:
            env = {**at.env, **process.env}
            assert env["RANK"] == str(process.rank)
            assert all(env[name] == value for name, value in job.env.items()), "the user's variables win"


@pytest.mark.parametrize("name", FRAMEWORKS)
@given(data=st.data())
def test_rules_proposals_and_plans_never_raise_and_agree_with_each_other(name: str, data: st.DataObject) -> None:
    wild = data.draw(jobs_of(name))
    framework = plugins.get_framework(name)
    for job in (wild, without_what_is_refused(wild)):
        found, proposal = validate.find_problems(job), framework.propose(job)
        for problem in [*found, *framework.warnings(job), *proposal.reasons]:
            assert all(texts(problem))
        step = framework.effective_batch(job)
        json.dumps([dict(proposal.strategy), dict(proposal.options), step and step.to_json()], allow_nan=False)
        given_it = proposal.to(job)
        before = {(problem.field, problem.code) for problem in found}
        assert {(problem.field, problem.code) for problem in validate.find_problems(given_it)} <= before
        for option, value in proposal.options.items():
            assert schemas.is_valid(value, framework.options["properties"][option]), option
            assert job.options.get(option, "auto") == "auto", "what the user gave is not repeated"
        for split in framework.splits(job)[:1]:
            taken = replace(job, strategy=split)
            assert framework.splits(taken) == [], "what is proposed can run"
        if not found:
            plan = framework.plan(job)
            keeps_the_rules(job, plan)
            assert framework.plan(given_it) == plan, "what is proposed is what runs"


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_option_is_refused_by_name_and_value_with_the_nearest_valid_one(name: str) -> None:
    """Each option of each framework, spelled in capitals and given a value that no schema here allows."""
    rules = plugins.get_framework(name).options["properties"]
    machine = Node("n", "n", gpu_type="A100", gpu_count=8)
    for option, rule in rules.items():
        for options in ({option: {"no": "value"}}, {option.upper(): 1}):
            job = JobSpec("task", name, (machine,), "n", options=options)
            problems = [problem for problem in validate.find_problems(job) if option.lower() in problem.field.lower()]
            assert problems, options
            for problem in problems:
                allowed = problem.params.get("allowed", "")
                for lang, text in zip(messages.LANGUAGES, texts(problem), strict=True):
                    said = (
                        messages.render_text(allowed.code, lang, **allowed.params)[0]
                        if isinstance(allowed, messages.NestedText)
                        else allowed
                    )
                    assert said in text
            if option.upper() in options:
                assert problems[0].params["nearest"] == option
                continue
            near = problems[0].params.get("nearest")
            assert near is None or schemas.is_valid(near, rule)
            assert near == rule.get("default", near) or rule.get("type") == "object"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_script_is_told_to_resume_by_its_rule_whatever_the_framework(framework: str) -> None:
    rule = ResumeRule(("--load", "{folder}"), {"RESUME_STEP": "{step}"})
    nodes = (Node("a", "a", gpu_type="A100", gpu_count=4),)
    sizes = {"layers": 4, "heads": 8, "hiddenSize": 64, "sequenceLength": 64}
    entry = Entrypoint("pretrain_gpt.py", ("--mock-data",), resume=rule)
    job = JobSpec("task", framework, nodes, "a", entrypoint=entry, hyperparameters=sizes, checkpoint_dir="/out")
    planner = plugins.get_framework(framework)
    fresh, resumed = (
        planner.plan(replace(job, attempt=2, resume_from=path)).nodes[0] for path in ("", "/out/iter_0000100")
    )
    assert resumed.command[-3:] == ("--mock-data", "--load", "{resume_folder}")
    assert resumed.command.count("--load") == 1
    assert resumed.env["RESUME_STEP"] == "{resume_step}"
    assert fresh.command[-1] == "--mock-data"
