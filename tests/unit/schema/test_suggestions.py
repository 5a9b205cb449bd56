"""Each rule broken once: what was found, what is allowed and the nearest valid value stand in the text, in both
languages, and the nearest value is valid where it is put."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi import messages
from fermi.jobs.errors import UnknownNameError
from fermi.jobs.spec import Entrypoint, JobSpec, Node, Problem
from fermi.planning import plugins, validate
from fermi.schema import suggestions
from tests.goldens import job

OPTION, HYPER, STRATEGY = "distributedConfig.options", "hyperparameters", "distributedConfig.strategy"
ALL = ("env-001", "env-003", "env-005")  # 14 processes

# framework, changes of a job on 14 processes, field, code, words that must stand in the text, nearest
BROKEN: dict[str, tuple[str, dict[str, Any], str, str, list[str], Any]] = {
    "option unknown": ("ddp", {"options": {"staticgraph": True}}, f"{OPTION}.staticgraph", "OPTION_UNKNOWN",
                       ["staticgraph", "bucketCapMb", "staticGraph"], "staticGraph"),
    "a word for a switch": ("ddp", {"options": {"staticGraph": "yes"}}, f"{OPTION}.staticGraph", "OPTION_INVALID",
                            ["yes", "true", "false"], True),
    "too small": ("ddp", {"options": {"bucketCapMb": 0}}, f"{OPTION}.bucketCapMb", "OPTION_INVALID",
                  ["0", "1", "1024"], 1),
    "too large": ("ddp", {"options": {"bucketCapMb": 4096}}, f"{OPTION}.bucketCapMb", "OPTION_INVALID",
                  ["4096", "1024"], 1024),
    "number as text": ("ddp", {"options": {"bucketCapMb": "50"}}, f"{OPTION}.bucketCapMb", "OPTION_INVALID",
                       ["50"], 50),
    "no timeout": ("ddp", {"options": {"timeoutSeconds": 0}}, f"{OPTION}.timeoutSeconds", "OPTION_INVALID",
                   ["86400"], 1),
    "no share": ("ddp", {"options": {"batchShare": "byspeed"}}, f"{OPTION}.batchShare", "OPTION_INVALID",
                 ["byspeed", "equal | bySpeed"], "bySpeed"),
    "hyperparameter unknown": ("ddp", {"hyperparameters": {"batch_size": 8}}, f"{HYPER}.batch_size",
                               "HYPERPARAMETER_UNKNOWN", ["batch_size", "learningRate"], "batchSize"),
    "hyperparameter too small": ("ddp", {"hyperparameters": {"batchSize": -3}}, f"{HYPER}.batchSize",
                                 "HYPERPARAMETER_INVALID", ["-3", "1", "65536"], 1),
    "hyperparameter misspelled": ("ddp", {"hyperparameters": {"dtype": "bf16"}}, f"{HYPER}.dtype",
                                  "HYPERPARAMETER_INVALID", ["bf16", "bfloat16 | "[:8]], "bfloat16"),
    "heads": ("ddp", {"hyperparameters": {"hiddenSize": 100, "heads": 8}}, f"{HYPER}.hiddenSize",
              "HIDDEN_NOT_DIVISIBLE_BY_HEADS", ["100", "8"], (96, 104)),
    "port": ("ddp", {"master_port": 80}, "distributedConfig.masterPort", "PORT_OUT_OF_RANGE", ["80", "65535"], 1024),
    "backend": ("ddp", {"backend": "ncll"}, "distributedConfig.backend", "BACKEND_UNKNOWN", ["ncll", "gloo"], "nccl"),
    "recipe": ("ddp", {"recipe": "gtp"}, "modelId", "RECIPE_UNKNOWN", ["gtp"], "gpt"),
    "variable reserved": ("ddp", {"env": {"RANK": "0"}}, "env.RANK", "ENV_RESERVED", ["RANK"], "MY_RANK"),
    "variable misnamed": ("ddp", {"env": {"1-A": "x"}}, "env.1-A", "ENV_NAME_INVALID", ["1-A"], "_1_A"),
    "fsdp mesh": ("fsdp", {"options": {"shardSize": 8}}, f"{OPTION}.shardSize", "FSDP_MESH_MISMATCH",
                  ["8", "14", "1, 2, 7, 14"], 7),
    "fsdp sharding": ("fsdp", {"options": {"sharding": "hybird"}}, f"{OPTION}.sharding", "OPTION_INVALID",
                      ["hybird", "auto | full | hybrid"], "hybrid"),
    "fsdp full": ("fsdp", {"options": {"sharding": "full", "shardSize": 2}}, f"{OPTION}.shardSize",
                  "FSDP_FULL_IS_ALL_RANKS", ["2", "14"], 14),
    "fsdp precisions": ("fsdp", {"options": {"mixedPrecision": "bfloat16"}, "hyperparameters": {"dtype": "float32"}},
                        f"{OPTION}.mixedPrecision", "PRECISIONS_DIFFER", ["bfloat16"], "float32"),
    "deepspeed product": (
        "deepspeed", {"options": {"trainBatchSize": 64, "microBatchSize": 8, "gradientAccumulationSteps": 1}},
        f"{OPTION}.trainBatchSize", "TRAIN_BATCH_CONTRADICTORY", ["64", "8", "14"], 112,
    ),
    "deepspeed train batch": ("deepspeed", {"options": {"trainBatchSize": 64}, "hyperparameters": {}},
                              f"{OPTION}.trainBatchSize", "TRAIN_BATCH_NOT_DIVISIBLE", ["64", "14"], (56, 70)),
    "deepspeed no batch": ("deepspeed", {"options": {"microBatchSize": 0}}, f"{OPTION}.microBatchSize",
                           "OPTION_INVALID", ["0", "1"], 1),
    "deepspeed auto": ("deepspeed", {"options": {"trainBatchSize": "auto"}}, f"{OPTION}.trainBatchSize",
                       "OPTION_INVALID", ["auto", "1"], 1),
    "deepspeed stage": ("deepspeed", {"options": {"zeroStage": 4}}, f"{OPTION}.zeroStage", "OPTION_INVALID",
                        ["4", "0", "3"], 3),
    "deepspeed offload": ("deepspeed", {"options": {"zeroStage": 2, "offloadParameters": "cpu"}},
                          f"{OPTION}.offloadParameters", "OFFLOAD_NEEDS_STAGE", ["2", "3"], "none"),
    "deepspeed float16": ("deepspeed", {"hyperparameters": {"dtype": "float16"}}, f"{HYPER}.dtype",
                          "FLOAT16_NEEDS_GPU", ["float16", "float32"], "bfloat16"),
    "deepspeed scheduler": (
        "deepspeed", {"options": {"scheduler": "WarmupDecayLR"}, "entrypoint": Entrypoint("a.py"),
                      "hyperparameters": {}},
        f"{HYPER}.totalSteps", "SCHEDULER_NEEDS_TOTAL_STEPS", ["WarmupDecayLR", "WarmupLR"], 1,
    ),
    "deepspeed key": ("deepspeed", {"options": {"config": {"step_per_print": 1}}}, f"{OPTION}.config.step_per_print",
                      "DEEPSPEED_KEY_UNKNOWN", ["step_per_print", "wall_clock_breakdown"], "steps_per_print"),
    "deepspeed value": ("deepspeed", {"options": {"config": {"steps_per_print": 0}}},
                        f"{OPTION}.config.steps_per_print", "DEEPSPEED_VALUE_INVALID", ["0", "1"], 1),
    "jax devices": ("jax", {"env": {"JAX_NUM_CPU_DEVICES": "4"}}, "env.JAX_NUM_CPU_DEVICES",
                    "JAX_ONE_DEVICE_PER_PROCESS", ["4"], 1),
    "jax float16": ("jax", {"hyperparameters": {"dtype": "float16"}}, f"{HYPER}.dtype", "DTYPE_NOT_OFFERED",
                    ["float16", "auto | bfloat16 | float32"], "bfloat16"),
    "jax mesh": ("jax", {"strategy": {"fsdpParallel": 4}}, f"{STRATEGY}.fsdpParallel", "JAX_MESH_MISMATCH",
                 ["4", "14", "1, 2, 7, 14"], 2),
    "jax data": ("jax", {"strategy": {"dataParallel": 3, "fsdpParallel": 2}}, f"{STRATEGY}.dataParallel",
                 "JAX_MESH_MISMATCH", ["3", "14"], 7),
    "jax gpu": ("jax", {"env": {"JAX_PLATFORM_NAME": "gpu"}}, "env.JAX_PLATFORM_NAME", "JAX_PLATFORM_ABSENT",
                ["gpu"], "cpu"),
    "jax platforms": ("jax", {"env": {"JAX_PLATFORM_NAME": "gpu", "JAX_PLATFORMS": "cpu"}}, "env.JAX_PLATFORM_NAME",
                      "JAX_PLATFORMS_DIFFER", ["gpu", "cpu"], "cpu"),
    "jax platform": ("jax", {"env": {"JAX_PLATFORMS": "gpu"}}, "env.JAX_PLATFORMS", "JAX_PLATFORM_UNKNOWN",
                     ["gpu", "cuda, cpu"], "cpu"),
    "jax batch": ("jax", {"options": {"batchIsGlobal": True}, "hyperparameters": {"batchSize": 64}},
                  f"{HYPER}.batchSize", "BATCH_NOT_SHAREABLE", ["64", "14"], (56, 70)),
}  # fmt: skip


def broken(spec: JobSpec) -> dict[str, Problem]:
    return {problem.field: problem for problem in validate.find_problems(spec)}


@pytest.mark.parametrize("case", BROKEN)
def test_a_refusal_has_the_found_the_allowed_and_the_nearest_value(case: str) -> None:
    framework, changes, field, code, words, near = BROKEN[case]
    problem = broken(job(*ALL, framework=plugins.resolve_framework_name(framework), **changes))[field]
    assert problem.code == code
    assert problem.params["nearest"] == near
    choices = near if isinstance(near, tuple) else (near,)
    for lang in messages.LANGUAGES:
        text = "\n".join(messages.render_text(code, lang, **problem.params))
        for word in [*words, *("true" if choice is True else str(choice) for choice in choices)]:
            assert word in text, (lang, text)


@pytest.mark.parametrize(
    ("case", "zh", "en"),
    [
        ("deepspeed stage", "选项 zeroStage 不能是 4：应为整数，不小于 0 且不大于 3。",
         "The option zeroStage cannot be 4; expected: a whole number, at least 0 and at most 3."),
        ("a word for a switch", "选项 staticGraph 不能是 yes：应为布尔值 true 或 false。",
         "The option staticGraph cannot be yes; expected: true or false."),
        ("hyperparameter too small", "超参数 batchSize 不能是 -3：应为整数，不小于 1 且不大于 65536。",
         "The hyperparameter batchSize cannot be -3; expected: a whole number, at least 1 and at most 65536."),
    ],
)  # fmt: skip
def test_a_refusal_is_rendered_in_the_readers_language(case: str, zh: str, en: str) -> None:
    framework, changes, field, code, _, _ = BROKEN[case]
    problem = broken(job(*ALL, framework=plugins.resolve_framework_name(framework), **changes))[field]
    assert [messages.render_text(code, lang, **problem.params)[0] for lang in ("zh", "en")] == [zh, en]


RENAMING = {"OPTION_UNKNOWN", "HYPERPARAMETER_UNKNOWN", "DEEPSPEED_KEY_UNKNOWN", "ENV_RESERVED", "ENV_NAME_INVALID"}
"""What is refused is the name: the nearest is another one for the same value."""


@pytest.mark.parametrize("case", BROKEN)
def test_the_nearest_value_keeps_the_rule(case: str) -> None:
    framework, changes, field, code, _, near = BROKEN[case]
    spec = job(*ALL, framework=plugins.resolve_framework_name(framework), **changes)
    for choice in near if isinstance(near, tuple) else (near,):
        mended = replace_field(spec, field, choice, renamed=code in RENAMING)
        assert code not in {problem.code for problem in broken(mended).values()}, choice


def replace_field(spec: JobSpec, field: str, choice: Any, *, renamed: bool) -> JobSpec:
    """The job with `choice` at `field`, or with what was there under that name."""
    *_, name = field.split(".")

    def changed(values: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in values.items() if key != name}
        return {**kept, choice: values[name]} if renamed else {**kept, name: choice}

    if field.startswith(f"{OPTION}.config."):
        return replace(spec, options={**spec.options, "config": changed(spec.options["config"])})
    if field.startswith(OPTION):
        return replace(spec, options=changed(spec.options))
    if field.startswith("env."):
        env = changed(spec.env)
        return replace(spec, env={key: str(value) for key, value in env.items()})
    if field.startswith(STRATEGY):
        return replace(spec, strategy=changed(spec.strategy))
    if field.startswith(HYPER):
        return replace(spec, hyperparameters=changed(spec.hyperparameters))
    return replace(spec, **{{"masterPort": "master_port", "backend": "backend", "modelId": "recipe"}[name]: choice})


def test_an_unknown_framework_names_the_nearest_and_all() -> None:
    with pytest.raises(UnknownNameError) as error:
        plugins.get_framework("deep-speed")
    for lang in messages.LANGUAGES:
        text = "\n".join(messages.render_text(error.value.code, lang, **error.value.params))
        for word in ("deep-speed", "deepspeed", "pytorch-ddp"):
            assert word in text


def test_a_value_decided_by_the_platform_names_its_source() -> None:
    spec = job(*ALL, framework="deepspeed", options={"config": {"fp16": {"enabled": True}}})
    problem = broken(spec)[f"{OPTION}.config.fp16.enabled"]
    for lang in messages.LANGUAGES:
        assert "hyperparameters.dtype" in messages.render_text(problem.code, lang, **problem.params)[1]


def test_batch_sharing_needs_known_gpu_speeds() -> None:
    nodes = (Node("a", "a", gpu_type="A100", gpu_count=1), Node("b", "b", gpu_type="X9000", gpu_count=1))
    for framework in ("pytorch-ddp", "pytorch-fsdp"):
        spec = JobSpec("task", framework, nodes, "a", options={"batchShare": "bySpeed"})
        problem = broken(spec)[f"{OPTION}.batchShare"]
        assert problem.params["nearest"] == "equal"
        for lang in messages.LANGUAGES:
            text = "\n".join(messages.render_text(problem.code, lang, **problem.params))
            assert "X9000" in text
            assert "H100" in text


numbers = st.integers() | st.floats() | st.text(max_size=6) | st.none() | st.lists(st.integers())


@given(numbers, st.integers(-5, 5), st.integers(6, 20), st.booleans())
def test_the_nearest_number_is_within_bounds(found: Any, low: int, high: int, whole: bool) -> None:
    near = suggestions.suggest_number(found, low, high, integer=whole)
    assert near is None or low <= near <= high
    assert near is None or not whole or isinstance(near, int)
    if isinstance(found, int) and low <= found <= high:
        assert near == found
