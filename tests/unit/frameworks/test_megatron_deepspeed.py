"""Megatron-LM + DeepSpeed: what DeepSpeed forbids beside Megatron's rules, what ZeRO saves, two files that agree."""

import json
import logging
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermi import messages
from fermi.frameworks import megatron_deepspeed
from fermi.frameworks.megatron import memory, search
from fermi.frameworks.megatron.request import MegatronRequest
from fermi.frameworks.megatron_deepspeed.request import read_request
from fermi.jobs.spec import LATE_TEXTS, Entrypoint, JobSpec, Node, resolve
from fermi.planning import plugins, validate
from fermi.planning.recommend import recommend_frameworks
from tests.goldens import gpt3
from tests.sampling import examples

STRATEGY, OPTION = "distributedConfig.strategy", "distributedConfig.options"
GIB = 2**30
SCRIPT = gpt3().entrypoint
SMALL = {"layers": 8, "hiddenSize": 256, "heads": 8, "sequenceLength": 64, "totalSteps": 10}


def spec(**changes: Any) -> JobSpec:
    """The document's GPT-3 on 8 × 8 A100, unless changed."""
    return gpt3(framework="megatron-deepspeed", **changes)


def with_argument(*words: str) -> Entrypoint:
    return Entrypoint("pretrain_gpt.py", words)


def settled(job: JobSpec) -> tuple[MegatronRequest, Any]:
    request = read_request(job)
    assert isinstance(request, MegatronRequest)
    return request, search.choose_split(request)


def launched(job: JobSpec) -> dict[str, Any]:
    """Arguments by name; True = a flag alone."""
    found: dict[str, Any] = {}
    for line in resolve(megatron_deepspeed.plan(job).files["megatron_args.txt"], LATE_TEXTS).splitlines():
        name, _, value = line.removeprefix("--").partition(" ")
        found[name] = value or True
    return found


def config(job: JobSpec) -> dict[str, Any]:
    return json.loads(resolve(megatron_deepspeed.plan(job).files["ds_config.json"], LATE_TEXTS))  # type: ignore[no-any-return]


BROKEN = {
    "ZeRO 2 with a pipeline": (
        {"options": {"zeroStage": 2}}, f"{OPTION}.zeroStage", "MEGATRON_DEEPSPEED_PIPELINE_STAGE", 1),
    "sequence parallelism beside tensor parallelism": (
        {"strategy": {"contextParallel": 2, "tensorParallel": 2}}, f"{STRATEGY}.contextParallel",
        "MEGATRON_DEEPSPEED_CONTEXT_ALONE", "tensorParallel=1, pipelineParallel=1, dataParallel=32, contextParallel=2"),
    "sequence parallelism that does not divide the heads": (
        {"strategy": {"contextParallel": 64}, "options": {"globalBatchSize": 64}}, f"{STRATEGY}.contextParallel",
        "MEGATRON_DEEPSPEED_CONTEXT_NOT_DIVISIBLE", "tensorParallel=1, pipelineParallel=1, dataParallel=2, "
        "contextParallel=32"),
    "an interleaved pipeline": (
        {"strategy": {"pipelineParallel": 4, "virtualPipeline": 2}}, f"{STRATEGY}.virtualPipeline",
        "STRATEGY_UNKNOWN", None),
    "a global batch that is not micro × accumulation × data": (
        {"options": {"globalBatchSize": 1537, "microBatchSize": 1}}, f"{OPTION}.globalBatchSize",
        "MEGATRON_BATCH_NOT_DIVISIBLE", "1536 / 1538"),
    "heads that tensor parallelism does not divide": (
        {"hyperparameters": {**SMALL, "heads": 4}}, f"{STRATEGY}.tensorParallel", "MEGATRON_HEADS_NOT_DIVISIBLE", None),
    "an optimizer in DeepSpeed's file as well": (
        {"options": {"config": {"optimizer": {"type": "AdamW"}}}}, f"{OPTION}.config.optimizer",
        "DEEPSPEED_KEY_DECIDED", None),
    "Megatron's distributed optimizer as well": (
        {"entrypoint": with_argument("--use-distributed-optimizer")}, "entrypoint.args",
        "MEGATRON_DEEPSPEED_OPTIMIZER_TWICE", None),
    "Megatron's sequence parallelism": (
        {"entrypoint": with_argument("--sequence-parallel")}, "entrypoint.args", "MEGATRON_DEEPSPEED_SEQUENCE", None),
    "another precision in DeepSpeed's file": (
        {"options": {"config": {"fp16": {"enabled": True}}}}, f"{OPTION}.config.fp16.enabled",
        "DEEPSPEED_KEY_DECIDED", None),
    "another stage on the command line": (
        {"entrypoint": with_argument("--zero-stage=3")}, "entrypoint.args", "MEGATRON_ARGUMENT_DECIDED", None),
    "no script": ({"entrypoint": None}, "entrypoint.script", "RECIPE_NOT_OFFERED", None),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "field", "code", "nearest"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_named_with_field_and_alternative(
    changes: dict[str, Any], field: str, code: str, nearest: object
) -> None:
    found = validate.find_problems(spec(**changes))
    [broken] = [problem for problem in found if problem.code == code]
    assert broken.field == field
    assert nearest is None or broken.params["nearest"] == nearest
    for language in ("zh", "en"):
        assert all(messages.render_text(problem.code, language, **problem.params)[0] for problem in found)


def test_arguments_and_deepspeeds_file_agree() -> None:
    job = spec(options={"globalBatchSize": 64, "precision": "float16"}, hyperparameters=SMALL)
    said, file = launched(job), config(job)
    assert file["train_batch_size"] == int(said["global-batch-size"]) == 64
    assert file["train_micro_batch_size_per_gpu"] == int(said["micro-batch-size"])
    assert file["gradient_accumulation_steps"] * int(said["micro-batch-size"]) * 2 == 64  # tensor 8, pipeline 4: data 2
    assert file["zero_optimization"]["stage"] == int(said["zero-stage"]) == 1
    assert (file["fp16"]["enabled"], file["bf16"]["enabled"]) == ("fp16" in said, "bf16" in said) == (True, False)
    assert file["gradient_clipping"] == float(said["clip-grad"])
    assert not {"optimizer", "scheduler"} & set(file)
    assert "no-pipeline-parallel" not in said


def test_a_custom_script_gets_our_arguments_first() -> None:
    command = [resolve(word, LATE_TEXTS) for word in megatron_deepspeed.plan(spec()).nodes[0].command]
    assert SCRIPT is not None
    assert command[2] == "pretrain_gpt.py"
    assert command[-len(SCRIPT.args) :] == list(SCRIPT.args)
    assert command.index("--deepspeed") < command.index("--data-path")
    quiet = spec(options={"globalBatchSize": 64, "appendArguments": False})
    assert megatron_deepspeed.plan(quiet).nodes[0].command[3:] == SCRIPT.args


def test_a_higher_stage_without_a_pipeline_is_chosen_automatically() -> None:
    request, split = settled(spec(strategy={}, options={"globalBatchSize": 64, "zeroStage": 3}))
    assert (split.pipeline, split.zero) == (1, 3)
    assert memory.estimate_memory(request, split).total <= memory.compute_usable_bytes(request)
    assert "no-pipeline-parallel" in launched(spec(strategy={}, options={"globalBatchSize": 64, "zeroStage": 3}))


@pytest.mark.parametrize(
    ("dtype", "stage", "each"),
    [
        ("bfloat16", 0, (2, 2, 12)), ("bfloat16", 1, (2, 4, 6)), ("bfloat16", 2, (2, 2, 6)), ("bfloat16", 3, (1, 2, 6)),
        ("float16", 1, (2, 2, 6)), ("float32", 2, (4, 2, 6)),
    ],
)  # fmt: skip
def test_zero_stages_split_optimizer_gradients_and_weights(
    dtype: str, stage: int, each: tuple[float, float, float]
) -> None:
    """Bytes per parameter over two data-parallel ranks."""
    nodes = (Node("a", "a", gpu_type="A100", gpu_count=2),)
    job = JobSpec("task", "megatron-deepspeed", nodes, "a", entrypoint=SCRIPT, hyperparameters=SMALL,
                  strategy={"tensorParallel": 1, "pipelineParallel": 1},
                  options={"zeroStage": stage, "precision": dtype})  # fmt: skip
    request, split = settled(job)
    taken, (parameters, _) = memory.estimate_memory(request, split), memory.count_stage_parameters(request.model, split)
    found = tuple(part / parameters for part in (taken.weights, taken.gradients, taken.optimizer))
    assert found == pytest.approx(each)


def test_gpt_3_on_64_a100_fits_only_with_zero_1() -> None:
    request, split = settled(spec())
    assert (split.tensor, split.pipeline, split.data, split.zero, split.recompute) == (8, 4, 2, 1, "full")
    assert memory.estimate_memory(request, split).total / GIB == pytest.approx(67, abs=1)
    plain, whole = settled(spec(options={"globalBatchSize": 1536, "microBatchSize": 1, "zeroStage": 0}))
    assert memory.estimate_memory(plain, whole).total > memory.compute_usable_bytes(plain)
    assert {one.code for one in validate.find_problems(spec(options={"zeroStage": 0}))} == {"MEGATRON_OUT_OF_MEMORY"}


def test_above_100_billion_it_is_recommended_first() -> None:
    good, _ = recommend_frameworks(gpt3(entrypoint=None, strategy={}, options={}))
    assert [one.framework for one in good][:2] == ["megatron-deepspeed", "megatron-lm"]
    assert good[0].options["zeroStage"] == 1
    assert good[0].reasons[-1].code == "RECOMMENDED_WITH_OWN_SCRIPT"
    assert good[1].reasons[0].code == "RECOMMENDED_BY_SIZE"


def test_the_missing_test_on_gpus_is_stated() -> None:
    warned = plugins.get_framework("megatron-deepspeed").warnings(spec())
    assert [one.code for one in warned] == ["MEGATRON_DEEPSPEED_UNTRIED"]


@pytest.fixture(scope="module")
def deepspeed_reads() -> Callable[[dict[str, Any], int], None]:
    """DeepSpeed's own validator, for as many data-parallel ranks as said; raises what it raises."""
    if not find_spec("deepspeed"):
        pytest.skip("needs deepspeed")
    from fermi.train import deepspeed_on_cpu  # noqa: F401
    from deepspeed.runtime import config as runtime  # isort: skip

    runtime.logger.setLevel(logging.ERROR)

    def read(file: dict[str, Any], data: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime.dist, "get_rank", lambda *_: 0)
            mpu = SimpleNamespace(get_data_parallel_world_size=lambda: data)
            found = runtime.DeepSpeedConfig(file, mpu=mpu)
        assert found.optimizer_name is None
        assert found.scheduler_name is None
        assert found.zero_config.stage == file["zero_optimization"]["stage"]

    return read


@settings(max_examples=examples(30))
@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([None, 0, 1, 2, 3]),
    st.sampled_from(["auto", "bfloat16", "float16", "float32"]), st.integers(1, 300),
)  # fmt: skip
def test_deepspeed_reads_a_valid_request_with_megatrons_numbers(
    deepspeed_reads: Callable[[dict[str, Any], int], None], tensor: int, pipeline: int, stage: int | None,
    precision: str, batch: int,
) -> None:  # fmt: skip
    options = {"globalBatchSize": batch, "precision": precision, **({} if stage is None else {"zeroStage": stage})}
    job = spec(strategy={"tensorParallel": tensor, "pipelineParallel": pipeline}, hyperparameters=SMALL,
               options=options)  # fmt: skip
    if validate.find_problems(job):
        return
    said, file = launched(job), config(job)
    assert file["train_batch_size"] == int(said["global-batch-size"])
    deepspeed_reads(file, 64 // (tensor * pipeline * int(said.get("ds-sequence-parallel-size", 1))))
