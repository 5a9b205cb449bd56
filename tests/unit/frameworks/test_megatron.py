"""Megatron-LM's rules, each broken once; the memory it takes; the split that is proposed; and what is launched."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fermi import messages
from fermi.frameworks import megatron
from fermi.frameworks.megatron import arguments, cost, memory, rules, search
from fermi.frameworks.megatron.request import ClusterShape, MegatronRequest, ModelShape, UserChoices, read_request
from fermi.frameworks.megatron.split import Split
from fermi.jobs import gpus, recipes
from fermi.jobs.spec import Entrypoint, JobSpec, Late, Node, Plan, Problem
from fermi.planning import plugins, validate
from tests.goldens import gpt3, job
from tests.sampling import examples

STRATEGY, OPTION = "distributedConfig.strategy", "distributedConfig.options"
DOCUMENT = ("env-001", "env-003", "env-005")  # 2 + 4 + 8
GIB = 2**30


def spec(*environments: str, **changes: Any) -> JobSpec:
    values = {"hyperparameters": {}, "emulated": False, **changes}
    return job(*environments, framework="megatron-lm", **values)


def own(*environments: str, **changes: Any) -> JobSpec:
    """Megatron-LM's own script."""
    sizes = {"layers": 4, "heads": 8, "hiddenSize": 64, "sequenceLength": 64, **changes.pop("hyperparameters", {})}
    return spec(*environments, entrypoint=Entrypoint("pretrain_gpt.py"), hyperparameters=sizes, **changes)


def texts(problems: list[Problem]) -> None:
    for problem in problems:
        for language in ("zh", "en"):
            assert all(messages.render_text(problem.code, language, **problem.params))


def found(spec: JobSpec) -> set[tuple[str, str]]:
    problems = validate.find_problems(spec)
    texts(problems)
    return {(problem.field, problem.code) for problem in problems}


def launched(plan: Plan) -> dict[str, str]:
    """Megatron's arguments, as the command has them."""
    words = [word for word in plan.nodes[0].command if isinstance(word, str)]
    names = [at for at, word in enumerate(words) if word.startswith("--")]
    ends = [*names[1:], len(words)]
    return {words[at].removeprefix("--"): " ".join(words[at + 1 : end]) for at, end in zip(names, ends, strict=True)}


# Rules ------------------------------------------------------------------------------------------------------------

BROKEN = {
    "a kind of parallelism that there is not": (spec("env-005", strategy={"sequence": 2}), f"{STRATEGY}.sequence",
                                                "STRATEGY_UNKNOWN"),
    "a degree that is none": (spec("env-005", strategy={"tensorParallel": 0}), f"{STRATEGY}.tensorParallel",
                              "STRATEGY_INVALID"),
    "a world that the split does not divide": (spec("env-003", strategy={"pipelineParallel": 3},
                                                    hyperparameters={"layers": 3}), STRATEGY,
                                               "MEGATRON_WORLD_NOT_DIVISIBLE"),
    "data parallelism that is not the quotient": (spec("env-005", strategy={"tensorParallel": 2, "dataParallel": 8}),
                                                  f"{STRATEGY}.dataParallel", "MEGATRON_DATA_PARALLEL_DERIVED"),
    "a tensor-parallel group across nodes": (spec("env-001", "env-002", strategy={"tensorParallel": 4}),
                                             f"{STRATEGY}.tensorParallel", "MEGATRON_TENSOR_CROSSES_NODES"),
    "heads that tensor parallelism does not divide": (spec("env-005", strategy={"tensorParallel": 8}),
                                                      f"{STRATEGY}.tensorParallel", "MEGATRON_HEADS_NOT_DIVISIBLE"),
    "layers that the pipeline does not divide": (spec("env-005", strategy={"pipelineParallel": 4}),
                                                 f"{STRATEGY}.pipelineParallel", "MEGATRON_LAYERS_NOT_DIVISIBLE"),
    "layers that virtual stages do not divide": (
        spec("env-005", strategy={"pipelineParallel": 2, "virtualPipeline": 2}), f"{STRATEGY}.virtualPipeline",
        "MEGATRON_LAYERS_NOT_DIVISIBLE",
    ),
    "virtual stages without a pipeline": (
        spec("env-005", strategy={"pipelineParallel": 1, "virtualPipeline": 2}), f"{STRATEGY}.virtualPipeline",
        "MEGATRON_VIRTUAL_NEEDS_PIPELINE",
    ),
    "micro-batches that an interleaved pipeline does not divide": (
        spec("env-005", hyperparameters={"layers": 4}, options={"globalBatchSize": 12, "microBatchSize": 1},
             strategy={"pipelineParallel": 2, "virtualPipeline": 2, "tensorParallel": 1}),
        f"{STRATEGY}.virtualPipeline", "MEGATRON_MICRO_BATCHES_NOT_DIVISIBLE",
    ),
    "heads that do not divide the hidden size": (spec("env-005", hyperparameters={"hiddenSize": 66}),
                                                 "hyperparameters.hiddenSize", "HIDDEN_NOT_DIVISIBLE_BY_HEADS"),
    "the same with both given": (spec("env-005", hyperparameters={"hiddenSize": 66, "heads": 4}),
                                 "hyperparameters.hiddenSize", "HIDDEN_NOT_DIVISIBLE_BY_HEADS"),
    "a sequence that context parallelism does not divide": (
        own("env-005", hyperparameters={"sequenceLength": 66}, strategy={"contextParallel": 2}),
        "hyperparameters.sequenceLength", "MEGATRON_SEQUENCE_NOT_DIVISIBLE",
    ),
    "sequence parallelism without tensor parallelism": (
        spec("env-005", strategy={"tensorParallel": 1}, options={"sequenceParallel": True}),
        f"{OPTION}.sequenceParallel", "MEGATRON_SEQUENCE_NEEDS_TENSOR",
    ),
    "a sequence that cannot be shared": (
        spec("env-005", strategy={"tensorParallel": 4}, options={"sequenceParallel": True},
             hyperparameters={"sequenceLength": 62}),
        f"{OPTION}.sequenceParallel", "MEGATRON_SEQUENCE_NOT_SHAREABLE",
    ),
    "fewer positions than the sequence has": (spec("env-005", options={"maxPositionEmbeddings": 32}),
                                              f"{OPTION}.maxPositionEmbeddings", "MEGATRON_POSITIONS_TOO_FEW"),
    "a global batch that is no multiple": (
        spec("env-005", strategy={"tensorParallel": 1, "pipelineParallel": 1}, options={"globalBatchSize": 20}),
        f"{OPTION}.globalBatchSize", "MEGATRON_BATCH_NOT_DIVISIBLE",
    ),
    "no micro-batch": (spec("env-005", options={"microBatchSize": 0}), f"{OPTION}.microBatchSize", "OPTION_INVALID"),
    "two precisions": (spec("env-005", options={"precision": "float16"}, hyperparameters={"dtype": "bfloat16"}),
                       f"{OPTION}.precision", "PRECISIONS_DIFFER"),
    "several connections": (spec("env-005", strategy={"tensorParallel": 2}, env={"CUDA_DEVICE_MAX_CONNECTIONS": "8"}),
                            "env.CUDA_DEVICE_MAX_CONNECTIONS", "MEGATRON_ONE_CONNECTION"),
    "experts that do not divide": (own("env-005", options={"numExperts": 6}, strategy={"expertParallel": 4}),
                                   f"{STRATEGY}.expertParallel", "MEGATRON_EXPERTS_NOT_DIVISIBLE"),
    "expert parallelism without experts": (own("env-005", strategy={"expertParallel": 2}),
                                           f"{STRATEGY}.expertParallel", "MEGATRON_EXPERTS_NOT_DIVISIBLE"),
    "expert groups larger than a stage": (
        own("env-003", options={"numExperts": 8}, strategy={"expertParallel": 8, "tensorParallel": 1}),
        f"{STRATEGY}.expertParallel", "MEGATRON_EXPERT_RANKS_NOT_DIVISIBLE",
    ),
    "experts and tensors without sequence parallelism": (
        own("env-003", options={"numExperts": 8, "sequenceParallel": False}, strategy={"tensorParallel": 2}),
        f"{OPTION}.sequenceParallel", "MEGATRON_EXPERTS_NEED_SEQUENCE",
    ),
    "context parallelism with the reference trainer": (spec("env-005", strategy={"contextParallel": 2}),
                                                       f"{STRATEGY}.contextParallel", "MEGATRON_TRAINER_LACKS"),
    "experts with the reference trainer": (spec("env-005", options={"numExperts": 8}), f"{OPTION}.numExperts",
                                           "MEGATRON_TRAINER_LACKS"),
    "an own script without a size": (own("env-005", hyperparameters={"layers": None}), "hyperparameters.layers",
                                     "MEGATRON_SIZE_NEEDED"),
    "a size beyond reason": (spec("env-005", hyperparameters={"hiddenSize": 10**400}), "hyperparameters.hiddenSize",
                             "MEGATRON_SIZE_NEEDED"),
    "an argument that a field decides": (
        replace(own("env-005"), entrypoint=Entrypoint("pretrain_gpt.py", ("--tensor-model-parallel-size=4",))),
        "entrypoint.args", "MEGATRON_ARGUMENT_DECIDED",
    ),
    "GPUs that are emulated": (spec("env-005", emulated=True), "distributedConfig.framework", "FRAMEWORK_NEEDS_CUDA"),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "code"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_named_with_its_field(spec: JobSpec, field: str, code: str) -> None:
    assert found(spec) == {(field, code)}


def test_the_document_s_64_on_14_processes_are_refused_with_the_nearest_split_that_works() -> None:
    strategy = {"dataParallel": 2, "pipelineParallel": 4, "tensorParallel": 8}
    problems = validate.find_problems(spec(*DOCUMENT, strategy=strategy))
    texts(problems)
    assert {problem.code for problem in problems} == {
        "MEGATRON_WORLD_NOT_DIVISIBLE", "MEGATRON_TENSOR_CROSSES_NODES", "MEGATRON_HEADS_NOT_DIVISIBLE",
        "MEGATRON_LAYERS_NOT_DIVISIBLE",
    }  # fmt: skip
    nearest = {"tensorParallel": 1, "pipelineParallel": 2, "dataParallel": 7}
    for problem in problems:
        assert problem.params["nearest"] == "tensorParallel=1, pipelineParallel=2, dataParallel=7"
    assert validate.find_problems(spec(*DOCUMENT, strategy=nearest)) == []


def test_emulated_gpus_are_refused_and_still_previewed() -> None:
    request = spec("env-005", emulated=True)
    assert megatron.problems(request) == []
    assert launched(megatron.plan(request))["bf16"] == ""


def test_batches_proposed_for_a_broken_one_are_valid() -> None:
    strategy = {"tensorParallel": 1, "pipelineParallel": 1}
    [problem] = validate.find_problems(spec("env-005", strategy=strategy, options={"globalBatchSize": 20}))
    assert problem.params["nearest"] == "16 / 24"
    for size in (16, 24):
        assert validate.find_problems(spec("env-005", strategy=strategy, options={"globalBatchSize": size})) == []


# Memory and time --------------------------------------------------------------------------------------------------


def test_gpt3_needs_the_memory_of_megatrons_own_estimate() -> None:
    """`report_theoretical_memory` of Megatron-LM 0.16.1, for the golden's arguments: 61.63 + 9.57 = 71.20 GiB; it
    counts neither the last stage nor the positions."""
    request = read_request(gpt3())
    assert isinstance(request, MegatronRequest)
    found = search.find_best_split(request)
    assert found is not None
    taken = memory.estimate_memory(request, found.split)
    assert taken.state / GIB == pytest.approx(61.63, rel=0.01)
    assert taken.total / GIB == pytest.approx(71.20, rel=0.01)
    assert memory.count_parameters(request.model) == pytest.approx(175e9, rel=0.01)


def test_the_reference_model_has_the_parameter_count_of_the_other_frameworks() -> None:
    """It is the same model, with the same learned positions."""
    shape = {"layers": 2, "heads": 4, "hiddenSize": 64, "sequenceLength": 64}
    request = read_request(job("env-001", framework="megatron-lm", hyperparameters=shape))
    assert isinstance(request, MegatronRequest)
    assert memory.count_parameters(request.model) == recipes.count_gpt_parameters(shape) == 136_960


GPT_22B = ModelShape(layers=48, heads=64, hidden=6144, sequence=2048, vocabulary=51200, tied=True)


def one_gpu(**changes: Any) -> tuple[MegatronRequest, Split]:
    """The 22B model of Korthikanti et al. 2022, table 3: tensor parallel 8, micro-batch 4."""
    cluster = ClusterShape((8,), (8,), gpus.Gpu(80, 8.0), True, "bfloat16")
    values = {
        "tensor": 8, "pipeline": 1, "context": 1, "virtual": 1, "expert": 1, "data": 1, "global_batch": 4, "micro": 4,
        "recompute": "none", "sequence_parallel": False, "distributed_optimizer": False, **changes,
    }  # fmt: skip
    return MegatronRequest(GPT_22B, cluster, UserChoices(4)), Split(**values)


def test_activation_memory_equals_the_paper() -> None:
    """Korthikanti et al. 2022, figure 8: of what tensor parallelism alone keeps, sequence parallelism leaves half and
    selective recomputation with it a fifth."""
    kept = {
        name: memory.estimate_layer_activations(*one_gpu(**changes))[0]
        for name, changes in {
            "tensor": {},
            "sequence": {"sequence_parallel": True},
            "both": {"sequence_parallel": True, "recompute": "selective"},
            "full": {"recompute": "full"},
        }.items()
    }
    sbh = 2048 * 4 * 6144
    assert kept["tensor"] == sbh * (10 + 24 / 8 + 5 * 64 * 2048 / 6144 / 8)
    assert kept["both"] == sbh * 34 / 8
    assert kept["full"] == sbh * 2
    assert kept["sequence"] / kept["tensor"] == pytest.approx(0.66, abs=0.02)
    assert kept["both"] / kept["tensor"] == pytest.approx(0.16, abs=0.05)


@pytest.mark.parametrize(
    ("dtype", "distributed", "bytes_each"),
    [("bfloat16", False, 18), ("float16", False, 20), ("float32", False, 16),
     ("bfloat16", True, 6 + 12 / 4), ("float16", True, 4 + 16 / 4), ("float32", True, 8 + 8 / 4)],
)  # fmt: skip
def test_bytes_per_parameter_equal_megatrons_guide(dtype: gpus.Precision, distributed: bool, bytes_each: float) -> None:
    request, split = one_gpu(data=4, distributed_optimizer=distributed)
    request = replace(request, cluster=replace(request.cluster, dtype=dtype))
    dense, _ = memory.count_stage_parameters(request.model, split)
    assert memory.estimate_memory(request, split).state == pytest.approx(dense * bytes_each)


def test_a_model_whose_state_is_too_large_is_refused_with_alternatives() -> None:
    request = gpt3(strategy={})
    small = replace(request, nodes=request.nodes[:2])
    [problem] = validate.find_problems(small)
    texts([problem])
    assert (problem.code, problem.params["gpus"]) == ("MEGATRON_OUT_OF_MEMORY", 64)
    proposal = megatron.propose(small)
    texts(list(proposal.reasons))
    assert [reason.code for reason in proposal.reasons] == ["MEGATRON_NOTHING_FITS"]
    assert validate.find_problems(replace(request, nodes=request.nodes[:8])) == []


def test_a_tight_fit_and_an_unknown_gpu_give_warnings() -> None:
    tight = gpt3(options={"globalBatchSize": 1536, "microBatchSize": 4, "recompute": "none"})
    unknown = replace(gpt3(), nodes=tuple(replace(node, gpu_type="X1") for node in gpt3().nodes))
    for request in (tight, unknown):
        assert validate.find_problems(request) == []
        warnings = megatron.warnings(request)
        texts(warnings)
        assert [warning.code for warning in warnings] == ["MEGATRON_OUT_OF_MEMORY"]


def test_a_pipeline_with_few_micro_batches_gives_a_warning() -> None:
    request = gpt3(options={"globalBatchSize": 4, "microBatchSize": 1})
    assert [warning.code for warning in megatron.warnings(request)] == ["MEGATRON_BUBBLE"]


def test_the_cost_model_has_known_properties() -> None:
    """Larger bubbles, more recomputation, slower links: each costs."""
    cluster = ClusterShape((8,) * 8, (64,), gpus.find_gpu("A100"), True, "bfloat16")
    request = MegatronRequest(ModelShape(96, 96, 12288, 2048, 51200, tied=True), cluster, UserChoices(1536))
    split = Split(8, 4, 1, 1, 1, 2, 1536, 1, "selective", True, True)
    seconds = cost.estimate_step_seconds(request, split)
    assert cost.compute_bubble_share(split) == pytest.approx(3 / (768 + 3))
    assert cost.estimate_step_seconds(request, replace(split, recompute="none")) < seconds
    assert cost.estimate_step_seconds(request, replace(split, recompute="full")) > seconds
    few, interleaved = replace(split, global_batch=16), replace(split, global_batch=16, virtual=6)
    assert cost.estimate_step_seconds(request, interleaved) < cost.estimate_step_seconds(request, few)
    apart = replace(request, cluster=replace(cluster, zones=(24, 40)))
    assert cost.estimate_step_seconds(apart, split) > seconds


# Proposals --------------------------------------------------------------------------------------------------------


def test_a_small_model_is_best_trained_data_parallel() -> None:
    proposal = megatron.propose(spec("env-001", "env-002"))
    texts(list(proposal.reasons))
    assert proposal.strategy == {"tensorParallel": 1, "pipelineParallel": 1, "dataParallel": 4}
    assert proposal.options["globalBatchSize"] == 8 * 4


def test_across_zones_less_data_parallelism_reduces_slow_traffic() -> None:
    assert megatron.propose(spec(*DOCUMENT)).strategy["tensorParallel"] == 2


def test_gpt3_is_split_within_nodes_and_fits() -> None:
    proposal = megatron.propose(gpt3(strategy={}, options={"globalBatchSize": 1536}))
    texts(list(proposal.reasons))
    assert proposal.strategy["tensorParallel"] in (4, 8)
    assert proposal.strategy["pipelineParallel"] >= 4
    assert {"MEGATRON_FASTEST", "MEGATRON_FITS", "MEGATRON_TENSOR_INSIDE_NODE", "MEGATRON_PIPELINE_BUBBLE"} <= {
        reason.code for reason in proposal.reasons
    }


def test_values_set_by_the_user_are_kept_and_not_proposed_again() -> None:
    proposal = megatron.propose(gpt3())
    assert proposal.strategy == {}
    assert proposal.options.keys() == {"recompute", "sequenceParallel", "distributedOptimizer"}


def every_split(request: MegatronRequest) -> Iterator[Split]:
    """Without cleverness: all there are, and the rules say which may run."""
    world, model, batch = request.cluster.world, request.model, request.given.global_batch
    for tensor, pipeline, context in product(*[range(1, world + 1)] * 3):
        if tensor * pipeline * context > world:
            continue
        data = world // (tensor * pipeline * context)
        shared = tensor > 1 and model.sequence % (tensor * context) == 0
        for virtual, micro in product(range(1, model.layers + 1), range(1, batch + 1)):
            split = Split(tensor, pipeline, context, virtual, 1, data, batch, micro, "none", shared, True)
            if not any(rules.find_problems(request, split)):
                yield from (replace(split, recompute=recompute) for recompute in search.RECOMPUTE_LEVELS)


@settings(max_examples=examples(25))
@given(
    st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=2).map(tuple),
    st.sampled_from([1, 2, 4, 6]),
    st.sampled_from([2, 4]),
    st.sampled_from([256, 1024, 4096]),
    st.sampled_from([12, 16, 24]),
    st.sampled_from([4, 16, 80]),
    st.booleans(),
)
def test_the_search_equals_exhaustive_search(
    nodes: tuple[int, ...], layers: int, heads: int, hidden: int, batch: int, gib: int, trainer: bool
) -> None:
    cluster = ClusterShape(nodes, (sum(nodes),), gpus.Gpu(gib, 8.0), True, "bfloat16")
    request = MegatronRequest(
        ModelShape(layers, heads, hidden, 2048, 51200), cluster, UserChoices(batch, trainer=trainer)
    )
    splits = list(every_split(request))
    room = memory.compute_usable_bytes(request)
    fitting = [
        (cost.estimate_step_seconds(request, s), s) for s in splits if memory.estimate_memory(request, s).total <= room
    ]
    found = search.find_best_split(request)
    if not splits:
        assert found is None
        return
    assert found is not None
    if fitting:
        assert found.split == search.choose_fastest(fitting)
    else:
        least = min(memory.estimate_memory(request, split).total for split in splits)
        assert (found.fits, memory.estimate_memory(request, found.split).total) == (0, least)


def test_a_plan_for_4096_ranks_has_a_proposal() -> None:
    nodes = tuple(replace(gpt3().nodes[0], id=f"env-{n}", name=f"node-{n:03}") for n in range(512))
    request = replace(gpt3(strategy={}, options={"globalBatchSize": 4096}), nodes=nodes, master="env-0")
    assert validate.find_problems(request) == []
    plan = megatron.plan(request)
    assert plan.world_size == 4096
    satisfies_every_rule(request, plan)


# What is launched -------------------------------------------------------------------------------------------------


def test_gpt3_is_launched_as_in_the_document() -> None:
    plan = megatron.plan(gpt3())
    words = launched(plan)
    assert {name: words[name] for name in ("tensor-model-parallel-size", "pipeline-model-parallel-size",
                                           "micro-batch-size", "global-batch-size", "num-layers", "hidden-size",
                                           "num-attention-heads", "seq-length", "max-position-embeddings")} == {
        "tensor-model-parallel-size": "8", "pipeline-model-parallel-size": "4", "micro-batch-size": "1",
        "global-batch-size": "1536", "num-layers": "96", "hidden-size": "12288", "num-attention-heads": "96",
        "seq-length": "2048", "max-position-embeddings": "2048",
    }  # fmt: skip
    batch = yaml.safe_load(str(plan.files["megatron_config.yaml"]))["batch"]
    assert batch["micro_batches"] == 768
    assert all(node.env["CUDA_DEVICE_MAX_CONNECTIONS"] == "1" for node in plan.nodes)


def test_blackwell_does_not_need_cuda_device_max_connections() -> None:
    nodes = (Node("a", "a", gpu_type="B200", gpu_count=2), Node("b", "b", gpu_type="H100", gpu_count=2))
    plan = megatron.plan(JobSpec("task", "megatron-lm", nodes, "a", strategy={"tensorParallel": 2}))
    assert [node.env.get("CUDA_DEVICE_MAX_CONNECTIONS") for node in plan.nodes] == [None, "1"]


def test_precision_follows_the_weakest_gpu() -> None:
    assert "fp16" in launched(megatron.plan(spec("env-001", "env-002")))  # one is a V100
    assert "bf16" in launched(megatron.plan(spec("env-001")))
    plain = launched(megatron.plan(spec("env-001", options={"precision": "float32"})))
    assert not {"bf16", "fp16"} & plain.keys()


def test_a_custom_script_gets_our_arguments_first() -> None:
    request = replace(own("env-005"), entrypoint=Entrypoint("pretrain_gpt.py", ("--mock-data",)))
    node = megatron.plan(request).nodes[0]
    assert node.command[:3] == (Late.PYTHON, "-u", "pretrain_gpt.py")
    assert node.command[3] == "--tensor-model-parallel-size"
    assert node.command[-1] == "--mock-data"
    alone = replace(request, options={"appendArguments": False})
    assert megatron.plan(alone).nodes[0].command == (Late.PYTHON, "-u", "pretrain_gpt.py", "--mock-data")
    file = str(megatron.plan(alone).files["megatron_args.txt"])
    assert file.split() == [word for word in node.command[3:-1] if isinstance(word, str)]
    assert node.env["FERMI_MEGATRON_ARGS"] == (Late.FILES_DIR, "/megatron_args.txt")


def test_a_custom_script_takes_any_hyperparameters() -> None:
    odd = {"learningRate": [1], "totalSteps": "many", "checkpointEvery": 0, "dtype": {}}
    request = own("env-005", hyperparameters=odd, checkpoint_dir="/checkpoints")
    assert validate.find_problems(request) == []
    words = launched(megatron.plan(request))
    assert not {"lr", "train-iters"} & words.keys()
    assert words["save-interval"] == str(arguments.DEFAULT_SAVE_STEPS)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", {"load": "/out"}),
        ("auto", {"load": "/out"}),
        ("/other/iter_0000100", {"load": "/other", "ckpt-step": "100"}),
        ("/other/global_step100", {"load": "/other"}),
        ("/other", {"load": "/other"}),
    ],
)
def test_a_custom_script_loads_from_the_folder_that_has_the_checkpoint(path: str, expected: dict[str, str]) -> None:
    words = launched(megatron.plan(own("env-005", checkpoint_dir="/out", resume_from=path)))
    assert {name: words[name] for name in ("load", "ckpt-step") if name in words} == expected


def test_it_is_found_by_both_names() -> None:
    assert plugins.get_framework("megatron") is plugins.get_framework("megatron-lm")
    assert megatron.INFO.model_size == (100_000_000_000, None)


# Anything goes in -------------------------------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
node = st.builds(
    Node, id=st.uuids().map(str), name=st.text(max_size=5), gpu_type=st.sampled_from(["A100", "V100", "B200", "X"]),
    gpu_count=st.integers(0, 9), emulated=st.booleans(), zone=st.sampled_from(["a", "b"]),
)  # fmt: skip
nodes = st.lists(node, min_size=1, max_size=4).map(tuple)
words = st.sampled_from([*megatron.OPTIONS["properties"], *recipes.GPT, *arguments.DECIDED_ARGUMENTS])
degrees = st.sampled_from([*megatron.request.DEGREES])


@given(
    nodes,
    st.dictionaries(degrees | st.text(max_size=6), anything | st.integers(1, 8)),
    st.dictionaries(words | st.text(max_size=6), anything | st.integers(1, 64)),
    st.dictionaries(words | st.text(max_size=6), anything | st.integers(1, 64)),
    st.booleans(),
)
def test_rules_never_raise_for_any_input(
    nodes: Any, strategy: Any, options: Any, hyperparameters: Any, own: bool
) -> None:
    entry = Entrypoint("train.py", tuple(hyperparameters)) if own else None
    spec = JobSpec("task", "megatron-lm", nodes, nodes[0].id, strategy=strategy, options=options,
                   hyperparameters=hyperparameters, entrypoint=entry)  # fmt: skip
    problems = validate.find_problems(spec)
    texts(problems + megatron.warnings(spec) + list(megatron.propose(spec).reasons))
    if not megatron.problems(spec) and not recipes.find_problems(spec):
        satisfies_every_rule(spec, megatron.plan(spec))


@st.composite
def requests(draw: st.DrawFn) -> JobSpec:
    """Mostly sensible ones."""
    sizes = st.sampled_from([1, 2, 4, 8])
    chosen = draw(st.lists(st.builds(Node, id=st.uuids().map(str), name=st.text(max_size=3), gpu_count=sizes,
                                     gpu_type=st.sampled_from(["A100", "V100", "H100", "B200"])),
                           min_size=1, max_size=5).map(tuple))  # fmt: skip
    heads = draw(st.sampled_from([4, 8, 12, 96]))
    hyperparameters = {
        "layers": draw(st.sampled_from([2, 4, 12, 96])), "heads": heads,
        "hiddenSize": heads * draw(st.sampled_from([8, 64, 128])),
        "sequenceLength": draw(st.sampled_from([128, 2048, 8192])),
    }  # fmt: skip
    strategy = draw(st.dictionaries(degrees, sizes, max_size=2))
    options = {
        **draw(st.fixed_dictionaries({}, optional={
            "globalBatchSize": st.sampled_from([64, 96, 1536]), "microBatchSize": st.sampled_from([1, 2]),
            "recompute": st.sampled_from(["none", "selective", "full"]), "sequenceParallel": st.booleans(),
            "distributedOptimizer": st.booleans(), "numExperts": st.just(8),
            "precision": st.sampled_from(["auto", "bfloat16", "float16", "float32"]),
        })),
    }  # fmt: skip
    entry = draw(st.none() | st.just(Entrypoint("pretrain_gpt.py")))
    return JobSpec("task", "megatron-lm", chosen, chosen[0].id, strategy=strategy, options=options,
                   hyperparameters=hyperparameters, entrypoint=entry)  # fmt: skip


def satisfies_every_rule(spec: JobSpec, plan: Plan) -> None:
    config = yaml.safe_load(str(plan.files["megatron_config.yaml"]))
    split, model, batch = config["parallel"], config["model"], config["batch"]
    tensor, pipeline, context, data = (split[name] for name in ("tensor", "pipeline", "context", "data"))
    assert tensor * pipeline * context * data == plan.world_size
    assert all(len(node.processes) % tensor == 0 for node in plan.nodes)
    assert model["attention_heads"] % tensor == 0
    assert model["layers"] % (pipeline * split["virtual_pipeline"]) == 0
    assert model["hidden_size"] % model["attention_heads"] == 0
    assert context == 1 or model["sequence_length"] % (2 * context) == 0
    assert batch["global"] == batch["micro"] * data * batch["micro_batches"]
    assert split["virtual_pipeline"] == 1 or (pipeline > 1 and batch["micro_batches"] % pipeline == 0)
    assert not split["sequence_parallel"] or (tensor > 1 and model["sequence_length"] % (tensor * context) == 0)
    assert max(1, model["experts"]) % split["expert"] == 0 == (data * context) % split["expert"]
    given = config["arguments"]
    assert not ("bf16" in given and "fp16" in given)
    assert given["max-position-embeddings"] >= given["seq-length"]
    assert [p.rank for node in plan.nodes for p in node.processes] == list(range(plan.world_size))
    for node in plan.nodes:
        needs = (tensor > 1 or context > 1) and gpus.find_gpu(node.node.gpu_type).capability < 10
        assert not needs or node.env["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(requests())
def test_a_valid_request_is_rendered_and_its_proposal_is_valid(spec: JobSpec) -> None:
    proposal = megatron.propose(spec)
    as_given = replace(
        spec, strategy={**spec.strategy, **proposal.strategy}, options={**spec.options, **proposal.options}
    )
    codes = [problem.code for problem in validate.find_problems(spec)]
    assert [problem.code for problem in validate.find_problems(as_given)] == codes
    if proposal.reasons:
        assert set(codes) <= {"MEGATRON_OUT_OF_MEMORY", "MEGATRON_TRAINER_LACKS"}
    if not codes:
        plan = megatron.plan(spec)
        satisfies_every_rule(spec, plan)
        assert megatron.plan(as_given) == plan


@pytest.fixture(scope="module")
def megatron_reads() -> Callable[[dict[str, str], int], None]:
    """megatron-core's own validators, for as many processes as said; raises what they raise."""
    if not find_spec("megatron"):
        pytest.skip("needs megatron-core: make test-frameworks")
    import warnings

    import torch

    warnings.simplefilter("ignore")
    from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator
    from megatron.core.parallel_state import RankGenerator
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

    def read(words: dict[str, str], processes: int) -> None:
        def number(name: str) -> int:
            return int(words.get(name, "1"))

        tensor, stages, context = (number(f"{kind}-parallel-size") for kind in ("tensor-model", "pipeline-model",
                                                                                "context"))  # fmt: skip
        experts, chunks = number("expert-model-parallel-size"), number("num-virtual-stages-per-pipeline-rank")
        data = processes // (tensor * stages * context)
        groups = RankGenerator(tensor, 1, data, stages, context, "tp-cp-ep-dp-pp")
        assert groups.world_size == processes
        calculator = ConstantNumMicroBatchesCalculator(
            number("global-batch-size"), number("micro-batch-size"), data, False, 1
        )
        assert calculator.get() >= 1
        dtype = torch.bfloat16 if "bf16" in words else torch.float16 if "fp16" in words else torch.float32
        full = words.get("recompute-granularity") == "full"
        config = TransformerConfig(
            num_layers=number("num-layers"), hidden_size=number("hidden-size"),
            num_attention_heads=number("num-attention-heads"), tensor_model_parallel_size=tensor,
            pipeline_model_parallel_size=stages, context_parallel_size=context, expert_model_parallel_size=experts,
            virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None, pipeline_dtype=dtype,
            params_dtype=dtype, bf16="bf16" in words, fp16="fp16" in words,
            sequence_parallel="sequence-parallel" in words, recompute_granularity=words.get("recompute-granularity"),
            recompute_method=words.get("recompute-method"), recompute_num_layers=1 if full else None,
            num_moe_experts=int(words["num-experts"]) if "num-experts" in words else None,
            add_bias_linear="disable-bias-linear" not in words,
        )  # fmt: skip
        stage = 0 if chunks > 1 else None
        assert get_num_layers_to_build(config, stage, 0) * stages * chunks == config.num_layers

    return read


@given(requests())
def test_megatron_core_accepts_the_rendered_arguments(
    megatron_reads: Callable[[dict[str, str], int], None], spec: JobSpec
) -> None:
    if not validate.find_problems(spec):
        plan = megatron.plan(spec)
        megatron_reads(launched(plan), plan.world_size)


def test_refused_settings_are_refused_by_megatron_core_too(
    megatron_reads: Callable[[dict[str, str], int], None],
) -> None:
    good = launched(megatron.plan(gpt3()))
    megatron_reads(good, 64)
    for change in (
        {"tensor-model-parallel-size": "5"}, {"pipeline-model-parallel-size": "7"}, {"global-batch-size": "1537"},
        {"fp16": ""}, {"tensor-model-parallel-size": "1", "pipeline-model-parallel-size": "32"},
        {"num-virtual-stages-per-pipeline-rank": "5"}, {"expert-model-parallel-size": "2"},
    ):  # fmt: skip
        with pytest.raises((AssertionError, ValueError, RuntimeError)):
            megatron_reads({**good, **change}, 64)


def test_defaults_are_the_trainer_s(monkeypatch: pytest.MonkeyPatch) -> None:
    from fermi.train import train_ddp

    monkeypatch.delenv("FERMI_HYPERPARAMETERS", raising=False)
    args = train_ddp.parse_args(["--train_data_path=train.bin"])
    for name, value in {**arguments.TRAINER_DEFAULTS, **megatron.request.TRAINER_SIZES}.items():
        assert getattr(args, recipes.GPT[name].flag) == value
