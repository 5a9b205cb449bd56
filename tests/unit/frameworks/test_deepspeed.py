"""DeepSpeed's rules, each broken once, and what is rendered where none is, read by DeepSpeed itself."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi import messages
from fermi.frameworks import deepspeed
from fermi.frameworks.deepspeed import config, keys, split
from fermi.jobs import recipes
from fermi.jobs.spec import Entrypoint, JobSpec, Late, Node, Plan
from fermi.planning import plugins, validate
from tests.goldens import job

DOCUMENT = ("env-001", "env-003", "env-005")  # 2 + 4 + 8


def spec(*environments: str, **changes: Any) -> JobSpec:
    return job(*environments, framework="deepspeed", **{"hyperparameters": {}, **changes})


def found(spec: JobSpec) -> dict[str, str]:
    """Field -> code; every text can be filled."""
    problems = validate.find_problems(spec) + plugins.get_framework("deepspeed").warnings(spec)
    for problem in problems:
        for language in ("zh", "en"):
            assert messages.render_text(problem.code, language, **problem.params)[0]
    return {problem.field: problem.code for problem in problems}


def rendered(spec: JobSpec) -> dict[str, Any]:
    assert validate.find_problems(spec) == []
    return json.loads(str(deepspeed.plan(spec).files["ds_config.json"]))


def triple(spec: JobSpec) -> tuple[int, int, int]:
    values = rendered(spec)
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    train, micro, steps = (values[name] for name in names)
    return train, micro, steps


def warned(spec: JobSpec) -> list[str]:
    return [warning.code for warning in plugins.get_framework("deepspeed").warnings(spec)]


OPTION, STRATEGY = "distributedConfig.options", "distributedConfig.strategy"
ASKED = {"dataParallel": 2, "pipelineParallel": 4, "tensorParallel": 8}  # the document's, for 14 processes
BROKEN = {
    "a stage that there is not": ({"options": {"zeroStage": 4}}, f"{OPTION}.zeroStage", "OPTION_INVALID"),
    "no samples": ({"options": {"trainBatchSize": 0}}, f"{OPTION}.trainBatchSize", "OPTION_INVALID"),
    "a batch size for Hugging Face": ({"options": {"trainBatchSize": "auto"}}, f"{OPTION}.trainBatchSize",
                                      "OPTION_INVALID"),
    "a train batch that 14 do not divide": ({"options": {"trainBatchSize": 64}}, f"{OPTION}.trainBatchSize",
                                            "TRAIN_BATCH_NOT_DIVISIBLE"),
    "a train batch that is not the product": (
        {"options": {"trainBatchSize": 56, "microBatchSize": 8, "gradientAccumulationSteps": 1}},
        f"{OPTION}.trainBatchSize", "TRAIN_BATCH_CONTRADICTORY",
    ),
    "both half precisions": ({"options": {"config": {"fp16": {"enabled": True}}}}, f"{OPTION}.config.fp16.enabled",
                             "DEEPSPEED_KEY_DECIDED"),
    "half precision on CPUs": ({"hyperparameters": {"dtype": "float16"}}, "hyperparameters.dtype",
                               "FLOAT16_NEEDS_GPU"),
    "a key that DeepSpeed would ignore": ({"options": {"config": {"train_batch": 64}}}, f"{OPTION}.config.train_batch",
                                          "DEEPSPEED_KEY_UNKNOWN"),
    "the document's own key": ({"options": {"config": {"distributed": {"world_size": 14}}}},
                               f"{OPTION}.config.distributed", "DEEPSPEED_KEY_DECIDED"),
    "a key that DeepSpeed would refuse": (
        {"options": {"config": {"zero_optimization": {"overlap": True}}}},
        f"{OPTION}.config.zero_optimization.overlap", "DEEPSPEED_KEY_UNKNOWN",
    ),
    "a value for Hugging Face": (
        {"options": {"config": {"zero_optimization": {"reduce_bucket_size": "auto"}}}},
        f"{OPTION}.config.zero_optimization.reduce_bucket_size", "DEEPSPEED_VALUE_INVALID",
    ),
    "a block that is none": ({"options": {"config": {"bf16": True}}}, f"{OPTION}.config.bf16",
                             "DEEPSPEED_VALUE_INVALID"),
    "a configuration that is none": ({"options": {"config": []}}, f"{OPTION}.config", "DEEPSPEED_VALUE_INVALID"),
    "state that is not split, offloaded": ({"options": {"zeroStage": 0, "offloadOptimizer": "cpu"}},
                                           f"{OPTION}.offloadOptimizer", "OFFLOAD_NEEDS_STAGE"),
    "weights that are not split, offloaded": ({"options": {"zeroStage": 2, "offloadParameters": "cpu"}},
                                              f"{OPTION}.offloadParameters", "OFFLOAD_NEEDS_STAGE"),
    "a decay without an end": (
        {"entrypoint": Entrypoint("train.py"), "options": {"scheduler": "WarmupDecayLR"}},
        "hyperparameters.totalSteps", "SCHEDULER_NEEDS_TOTAL_STEPS",
    ),
    "stages that 14 do not divide": ({"strategy": {"pipelineParallel": 4}, "hyperparameters": {"layers": 4}}, STRATEGY,
                                     "DEEPSPEED_WORLD_NOT_DIVISIBLE"),
    "a group that crosses nodes": ({"strategy": {"tensorParallel": 7}, "hyperparameters": {"heads": 7}},
                                   f"{STRATEGY}.tensorParallel", "DEEPSPEED_TENSOR_CROSSES_NODES"),
    "heads that are cut": ({"strategy": {"tensorParallel": 2}, "hyperparameters": {"heads": 1}},
                           f"{STRATEGY}.tensorParallel", "DEEPSPEED_HEADS_NOT_DIVISIBLE"),
    "stages without a layer": ({"strategy": {"pipelineParallel": 7}}, f"{STRATEGY}.pipelineParallel",
                               "DEEPSPEED_STAGES_TOO_MANY"),
    "gradients split in a pipeline": ({"strategy": {"pipelineParallel": 2}, "options": {"zeroStage": 2}},
                                      f"{OPTION}.zeroStage", "DEEPSPEED_PIPELINE_STAGE"),
    "half a rank": ({"strategy": {"tensorParallel": 0.5}}, f"{STRATEGY}.tensorParallel", "STRATEGY_INVALID"),
    "a train batch that 7 do not divide": (
        {"strategy": {"tensorParallel": 2}, "options": {"trainBatchSize": 64}}, f"{OPTION}.trainBatchSize",
        "TRAIN_BATCH_NOT_DIVISIBLE",
    ),
    "a split that the file cannot say": ({"options": {"config": {"tensor_parallel": {"autotp_size": 2}}}},
                                         f"{OPTION}.config.tensor_parallel", "DEEPSPEED_KEY_DECIDED"),
    "an option of another framework": ({"options": {"staticGraph": True}}, f"{OPTION}.staticGraph", "OPTION_UNKNOWN"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "field", "code"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_named_with_its_field(changes: dict[str, Any], field: str, code: str) -> None:
    assert found(spec(*DOCUMENT, **changes)) == {field: code}


def test_the_document_s_train_batch_of_64_is_refused_on_14_processes_with_56_or_70_proposed() -> None:
    [problem] = validate.find_problems(spec(*DOCUMENT, options={"trainBatchSize": 64}))
    assert problem.params == {"found": 64, "worldSize": 14, "unit": 14, "nearest": (56, 70)}
    for proposal in (56, 70):
        assert triple(spec(*DOCUMENT, options={"trainBatchSize": proposal})) == (proposal, proposal // 14, 1)


def test_the_document_s_request_is_accepted_with_a_warning_and_keeps_its_values_where_they_can_run() -> None:
    request = spec(*DOCUMENT, strategy=ASKED)
    assert warned(request) == ["STRATEGY_NOT_RENDERED", "DEEPSPEED_SPLITS_POSSIBLE"]
    values = rendered(request)
    assert values["optimizer"]["type"] == "AdamW"
    assert values["optimizer"]["params"]["lr"] == 0.0001
    assert values["zero_optimization"] == {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    assert triple(request) == (70, 5, 1)
    assert triple(spec("env-001", "env-002")) == (64, 16, 1)
    assert "distributed" not in values
    assert (
        deepspeed.plan(request).files["hostfile"]
        == "192.168.1.10 slots=2\n192.168.2.20 slots=4\n192.168.3.30 slots=8\n"
    )


@pytest.mark.parametrize(
    ("options", "hyperparameters", "expected"),
    [
        ({}, {"batchSize": 8}, (112, 8, 1)),
        ({}, {"batchSize": 8, "gradientAccumulationSteps": 2}, (224, 8, 2)),
        ({}, {"gradientAccumulationSteps": 2}, (56, 2, 2)),
        ({"microBatchSize": 3}, {"batchSize": 8, "gradientAccumulationSteps": 2}, (84, 3, 2)),
        ({"trainBatchSize": 56}, {}, (56, 4, 1)),
        ({"trainBatchSize": 112}, {"batchSize": 4}, (112, 4, 2)),
        ({"trainBatchSize": 112, "gradientAccumulationSteps": 4}, {"batchSize": 8}, (112, 2, 4)),
        ({"trainBatchSize": 112, "microBatchSize": 2}, {"gradientAccumulationSteps": 8}, (112, 2, 4)),
        ({"trainBatchSize": 56}, {"batchSize": 8, "gradientAccumulationSteps": 1}, (56, 4, 1)),
        ({"trainBatchSize": 56}, {"batchSize": 8, "gradientAccumulationSteps": 2}, (56, 2, 2)),
    ],
)
def test_the_batch_triple_is_solved_from_what_is_given(
    options: dict[str, int], hyperparameters: dict[str, int], expected: tuple[int, int, int]
) -> None:
    assert triple(spec(*DOCUMENT, options=options, hyperparameters=hyperparameters)) == expected


def test_a_changed_batch_size_is_named() -> None:
    request = spec(*DOCUMENT, options={"trainBatchSize": 56}, hyperparameters={"batchSize": 8})
    assert found(request) == {"hyperparameters.batchSize": "BATCH_SIZE_GAVE_WAY"}


@pytest.mark.parametrize(
    ("environments", "emulated", "dtype", "fp16", "bf16"),
    [
        (["env-001"], False, "auto", False, True),
        (["env-001", "env-002"], False, "auto", True, False),  # one is a V100
        (["env-001"], False, "float16", True, False),
        (["env-001"], True, "auto", False, False),
        (["env-001"], True, "bfloat16", False, True),
    ],
)
def test_precision_follows_the_weakest_gpu(
    environments: list[str], emulated: bool, dtype: str, fp16: bool, bf16: bool
) -> None:
    values = rendered(spec(*environments, emulated=emulated, hyperparameters={"dtype": dtype}))
    assert (values["fp16"]["enabled"], values["bf16"]["enabled"]) == (fp16, bf16)


def test_one_node_without_cuda_moves_all_ranks_to_cpus() -> None:
    nodes = (Node("a", "a", gpu_type="A100", gpu_count=2), Node("b", "b"))
    plan = deepspeed.plan(JobSpec("task", "deepspeed", nodes, "a"))
    assert [node.env["DS_ACCELERATOR"] for node in plan.nodes] == ["cpu", "cpu"]
    assert [node.env["CUDA_VISIBLE_DEVICES"] for node in plan.nodes] == ["", ""]
    assert plan.preload == deepspeed.PRELOAD


def test_imports_before_the_fork_do_not_touch_gpus() -> None:
    plan = deepspeed.plan(spec("env-001", emulated=False))
    assert "DS_ACCELERATOR" not in plan.nodes[0].env
    assert not [name for name in plan.preload if "deepspeed" in name]


def test_pascal_uses_float16_when_configured() -> None:
    nodes = (Node("a", "a", gpu_type="P100", gpu_count=2),)
    assert deepspeed.plan(JobSpec("task", "deepspeed", nodes, "a")).nodes[0].env["DS_ALLOW_DEPRECATED_FP16"] == "1"


def test_a_custom_script_gets_the_path_of_the_configuration() -> None:
    plan = deepspeed.plan(spec("env-001", entrypoint=Entrypoint("train.py", ("--x",)), hyperparameters={"dtype": [1]}))
    assert plan.nodes[0].command == (Late.PYTHON, "-u", "train.py", "--x")
    assert plan.nodes[0].env["FERMI_DEEPSPEED_CONFIG"] == (Late.FILES_DIR, "/ds_config.json")


def test_user_settings_win() -> None:
    options = {"optimizer": "SGD", "offloadOptimizer": "none", "config": {"zero_optimization": {"overlap_comm": False}}}
    hyperparameters = {"learningRate": 0.5, "learningRateScaling": "linear", "gradientClipping": 2, "weightDecay": 0}
    env = {"TORCH_EXTENSIONS_DIR": "/cache"}
    request = spec("env-001", options=options, hyperparameters=hyperparameters, env=env)
    values = rendered(request)
    assert values["optimizer"] == {"type": "SGD", "params": {"lr": 1.0, "weight_decay": 0, "momentum": 0.9}}
    assert values["gradient_clipping"] == 2
    assert values["zero_optimization"] == {"stage": 2, "overlap_comm": False}
    assert deepspeed.plan(request).nodes[0].env["TORCH_EXTENSIONS_DIR"] == "/cache"


# Splits of the model ----------------------------------------------------------------------------------------------


def eight(**changes: Any) -> JobSpec:
    """On 8 GPUs of one node, with 4 layers and 4 heads."""
    return spec("env-005", **{"hyperparameters": {"layers": 4}, **changes})


def test_tensor_parallelism_alone_uses_deepspeeds_own_and_its_train_batch() -> None:
    request = eight(strategy={"tensorParallel": 4}, options={"trainBatchSize": 16})
    values = rendered(request)
    assert values["tensor_parallel"] == {"autotp_size": 4}
    assert "train_batch_size" not in values
    assert (values["train_micro_batch_size_per_gpu"], values["zero_optimization"]["stage"]) == (8, 2)
    plan = deepspeed.plan(request)
    assert plan.nodes[0].env["FERMI_TENSOR_PARALLEL"] == "4"
    assert "FERMI_PIPELINE_PARALLEL" not in plan.nodes[0].env
    command = list(plan.nodes[0].command)
    assert command[command.index("--tensor_parallel_size") + 1] == "4"


def test_a_pipeline_has_stage_1_and_enough_micro_batches() -> None:
    request = eight(strategy={"tensorParallel": 2, "pipelineParallel": 2})
    values = rendered(request)
    assert (values["pipeline"], "tensor_parallel" in values) == ({"stages": 2}, False)
    assert values["zero_optimization"]["stage"] == 1
    assert triple(request) == (64, 4, 8)  # 4 micro batches × 8 × 2 ranks of data
    proposal = deepspeed.propose(request)
    assert proposal.strategy == {"dataParallel": 2}
    assert warned(request) == []
    assert warned(eight(strategy={"pipelineParallel": 4}, options={"gradientAccumulationSteps": 1})) == [
        "DEEPSPEED_BUBBLE"
    ]


def test_a_model_too_large_for_its_split_is_named() -> None:
    large = {"layers": 96, "heads": 96, "hiddenSize": 12288, "sequenceLength": 2048, "vocabSize": 50304}
    split = {"tensorParallel": 8}
    assert warned(eight(strategy=split, hyperparameters=large, options={"zeroStage": 0})) == ["DEEPSPEED_OUT_OF_MEMORY"]
    assert warned(eight(strategy=split, options={"zeroStage": 0}, hyperparameters={"heads": 8})) == []


def test_all_problems_are_named_with_the_nearest_valid_values() -> None:
    request = spec(*DOCUMENT, strategy={"tensorParallel": 8, "pipelineParallel": 4}, options={"zeroStage": 3})
    problems = validate.find_problems(request)
    assert {problem.code for problem in problems} == {
        "DEEPSPEED_WORLD_NOT_DIVISIBLE", "DEEPSPEED_TENSOR_CROSSES_NODES", "DEEPSPEED_HEADS_NOT_DIVISIBLE",
        "DEEPSPEED_STAGES_TOO_MANY", "DEEPSPEED_PIPELINE_STAGE",
    }  # fmt: skip
    nearest = {problem.params["nearest"] for problem in problems if problem.code != "DEEPSPEED_PIPELINE_STAGE"}
    assert nearest == {"tensorParallel=1, pipelineParallel=2, dataParallel=7"}


def test_splits_nearest_to_the_documents_can_run_on_its_nodes() -> None:
    request = spec(*DOCUMENT, strategy=ASKED, hyperparameters={"layers": 28})
    possible = plugins.get_framework("deepspeed").splits(request)
    assert [tuple(one.values()) for one in possible] == [(1, 7, 2), (2, 7, 1), (1, 2, 7)]
    for strategy in possible:
        taken = spec(*DOCUMENT, strategy=strategy, hyperparameters={"layers": 28})
        assert validate.find_problems(taken) == []
        assert plugins.get_framework("deepspeed").splits(taken) == []
        assert "STRATEGY_NOT_RENDERED" not in warned(taken)


@pytest.mark.parametrize("stage", [2, 3])
def test_proposed_splits_run_with_the_requested_stage(stage: int) -> None:
    request = eight(strategy={"dataParallel": 1}, options={"zeroStage": stage})
    possible = plugins.get_framework("deepspeed").splits(request)
    assert possible
    for strategy in possible:
        assert strategy["pipelineParallel"] == 1, "this stage has no pipeline"
        assert validate.find_problems(eight(strategy=strategy, options={"zeroStage": stage})) == []
    assert "pipelineParallel=2" not in str([one.params for one in plugins.get_framework("deepspeed").warnings(request)])


def test_a_custom_scripts_model_is_not_checked_but_its_ranks_are() -> None:
    own = {"entrypoint": Entrypoint("train.py"), "hyperparameters": {"layers": 1, "heads": 1}}
    request = eight(**own, strategy={"tensorParallel": 4, "pipelineParallel": 2})
    env = deepspeed.plan(request).nodes[0].env
    assert (env["FERMI_TENSOR_PARALLEL"], env["FERMI_PIPELINE_PARALLEL"]) == ("4", "2")
    assert found(eight(**own, strategy={"tensorParallel": 3}))[f"{STRATEGY}.tensorParallel"]


# Anything goes in, and DeepSpeed reads what comes out -------------------------------------------------------------


def values(rule: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Of a JSON Schema as ours are."""
    if "enum" in rule:
        return st.sampled_from(rule["enum"])
    if rule["type"] == "boolean":
        return st.booleans()
    if rule["type"] == "integer":
        return st.integers(rule["minimum"], rule["maximum"])
    if rule["type"] == "number":
        low, outside = rule.get("minimum", rule.get("exclusiveMinimum")), "exclusiveMinimum" in rule
        return st.floats(low, rule["maximum"], exclude_min=outside)
    return st.fixed_dictionaries({}, optional={name: values(inner) for name, inner in rule["properties"].items()})


def choices(parameter: recipes.HyperparameterRule) -> st.SearchStrategy[Any]:
    if parameter.choices:
        return st.sampled_from(parameter.choices)
    if parameter.kind in (int, float):
        numbers: Callable[..., st.SearchStrategy[Any]] = st.integers if parameter.kind is int else st.floats
        return numbers(min_value=parameter.low, max_value=parameter.high)
    return st.booleans() if parameter.kind is bool else st.text(min_size=1, max_size=8)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
node = st.builds(
    Node, id=st.uuids().map(str), name=st.text(max_size=5), gpu_type=st.sampled_from(["A100", "V100", "P100", "X"]),
    gpu_count=st.integers(0, 9), emulated=st.booleans(),
)  # fmt: skip
nodes = st.lists(node, min_size=1, max_size=4).map(tuple)
valid_options = values(config.OPTIONS)
valid_hyperparameters = st.fixed_dictionaries({}, optional={name: choices(p) for name, p in recipes.GPT.items()})
strategies = st.dictionaries(st.sampled_from(split.DEGREES), st.integers(1, 4))
names = st.sampled_from([*config.OPTIONS["properties"], *recipes.GPT, "zero_optimization", "fp16"])


def request(
    nodes: tuple[Node, ...], options: Any, hyperparameters: Any, own: bool = False, strategy: Any = None
) -> JobSpec:
    entrypoint = Entrypoint("train.py") if own else None
    return JobSpec("task", "deepspeed", nodes, nodes[0].id, options=options, hyperparameters=hyperparameters,
                   entrypoint=entrypoint, strategy=strategy or {})  # fmt: skip


def satisfies_every_rule(spec: JobSpec, plan: Plan) -> None:
    read = json.loads(str(plan.files["ds_config.json"]))
    at = split.read_split(spec)
    micro, steps = read["train_micro_batch_size_per_gpu"], read["gradient_accumulation_steps"]
    assert read.get("train_batch_size", micro * steps * at.data) == micro * steps * at.data
    assert min(micro, steps) > 0
    assert at.tensor * at.pipeline * at.data == plan.world_size
    assert not any(node.processes % at.tensor for node in spec.nodes)
    assert at.pipeline == 1 or read["zero_optimization"]["stage"] < 2
    assert not (read["fp16"]["enabled"] and read["bf16"]["enabled"])
    assert read["zero_optimization"]["stage"] in (0, 1, 2, 3)
    assert read.keys() <= {*keys.CONFIG_SCHEMA["properties"], *keys.DECIDED_KEYS, "zero_allow_untested_optimizer"}
    assert [p.rank for node in plan.nodes for p in node.processes] == list(range(plan.world_size))


@given(
    nodes,
    st.dictionaries(names | st.text(max_size=6), anything),
    st.dictionaries(names | st.text(max_size=6), anything),
    st.booleans(),
    st.dictionaries(
        st.sampled_from([*split.DEGREES, "contextParallel"]), st.integers(-1, 1 << 70) | st.text(max_size=2)
    ),
)
def test_rules_never_raise_for_any_input(
    nodes: Any, options: Any, hyperparameters: Any, own: bool, strategy: Any
) -> None:
    spec = request(nodes, options, hyperparameters, own, strategy)
    problems = validate.find_problems(spec)
    plugins.get_framework("deepspeed").warnings(spec)
    plugins.get_framework("deepspeed").splits(spec)
    if not problems:
        satisfies_every_rule(spec, deepspeed.plan(spec))


@pytest.fixture(scope="module")
def deepspeed_reads() -> Callable[..., None]:
    """DeepSpeed's own validator, for as many processes as said; raises what it raises."""
    if not find_spec("deepspeed"):
        pytest.skip("needs deepspeed")
    import logging

    from fermi.train import deepspeed_on_cpu  # noqa: F401
    from deepspeed.runtime import config as runtime  # isort: skip

    runtime.logger.setLevel(logging.ERROR)

    def read(text: str, processes: int, at: split.Split | None = None) -> None:
        """As its engine does, or its engine for pipelines."""
        mpu = SimpleNamespace(get_data_parallel_world_size=lambda: at.data) if at and at.pipeline > 1 else None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime.dist, "get_rank", lambda *_: 0)
            patch.setattr(runtime.dist, "get_world_size", lambda *_: processes)
            expected = at.data if at and mpu else processes
            assert runtime.DeepSpeedConfig(json.loads(text), mpu).world_size == expected

    return read


@st.composite
def requests(draw: st.DrawFn) -> JobSpec:
    """Requests that break no rule: what does is left out."""
    chosen = draw(nodes)
    options, hyperparameters = draw(valid_options), draw(valid_hyperparameters)
    if draw(st.booleans()):
        options["trainBatchSize"] = draw(st.integers(1, 100)) * sum(node.processes for node in chosen)
    strategy = draw(strategies)
    while broken := validate.find_problems(spec := request(chosen, options, hyperparameters, strategy=strategy)):
        for problem in broken:
            *_, group, name = problem.field.split(".")
            if name == "strategy":
                strategy.clear()
            else:
                {"options": options, "hyperparameters": hyperparameters, "strategy": strategy}[group].pop(name, None)
    return spec


@given(requests())
def test_a_valid_request_is_rendered_and_accepted_by_deepspeed(
    deepspeed_reads: Callable[..., None], spec: JobSpec
) -> None:
    plan = deepspeed.plan(spec)
    satisfies_every_rule(spec, plan)
    deepspeed_reads(str(plan.files["ds_config.json"]), plan.world_size, split.read_split(spec))


def test_refused_settings_are_refused_by_deepspeed_too(deepspeed_reads: Callable[..., None]) -> None:
    good = rendered(spec(*DOCUMENT))
    for change in (
        {"train_batch_size": 64},
        {"zero_optimization": {"stage": 4}},
        {"zero_optimization": {"overlap": True}},
        {"fp16": {"enabled": True}, "bf16": {"enabled": True}},
        {"train_batch_size": "auto"},
    ):
        with pytest.raises((AssertionError, ValueError, TypeError)):
            deepspeed_reads(json.dumps({**good, **change}), 14)
    deepspeed_reads(json.dumps(good), 14)


def test_defaults_are_the_recipes_except_the_documents_learning_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    from fermi.train import train_ddp

    monkeypatch.delenv("FERMI_HYPERPARAMETERS", raising=False)
    args = train_ddp.parse_args(["--train_data_path=train.bin"])
    for name, value in config.DEFAULT_HYPERPARAMETERS.items():
        if name != "learningRate":
            assert getattr(args, recipes.GPT[name].flag) == value
