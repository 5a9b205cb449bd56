"""What is chosen from a model's size and the nodes: how large models are counted, what fits, who gets how much."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi import messages
from fermi.jobs import batch_shares, gpus, memory, recipes
from fermi.jobs.spec import Entrypoint, JobSpec, Node
from fermi.planning import plugins
from fermi.planning.recommend import recommend_frameworks
from tests.goldens import job

A100, V100, T4 = (Node(name, name, gpu_type=name, gpu_count=2) for name in ("A100", "V100", "T4"))


def over(*nodes: Node, **changes: Any) -> JobSpec:
    return JobSpec("task", changes.pop("framework", "pytorch-ddp"), nodes, nodes[0].id, **changes)


@pytest.mark.parametrize("shape", [{}, {"layers": 3, "hiddenSize": 24, "sequenceLength": 10}])
def test_parameters_are_counted_exactly(shape: dict[str, int]) -> None:
    from fermi.train import train_ddp

    words = [f"--{recipes.GPT[name].flag}={value}" for name, value in shape.items()]
    model = train_ddp.GPT(train_ddp.parse_args(["--train_data_path=x", "--n_head=2", *words]))
    assert recipes.count_gpt_parameters(shape) == sum(weight.numel() for weight in model.parameters())


def test_gpt_3s_shape_has_gpt_3s_parameter_count() -> None:
    assert recipes.count_gpt_parameters(recipes.choose_typical_sizes(175_000_000_000)) == pytest.approx(175e9, rel=0.02)


@given(st.integers(1, 10**18))
def test_every_size_has_a_typical_valid_shape(parameters: int) -> None:
    shape = recipes.choose_typical_sizes(parameters)
    assert recipes.find_problems(over(A100, hyperparameters=shape)) == []


def test_a_scripts_model_size_is_known_only_if_given() -> None:
    own = Entrypoint("train.py")
    assert recipes.count_model_parameters(over(A100, entrypoint=own)) is None
    assert recipes.count_model_parameters(over(A100, entrypoint=own, model_parameters=7)) == 7
    assert recipes.count_model_parameters(over(A100)) == recipes.count_gpt_parameters({})


def test_state_is_16_bytes_per_parameter_divided_by_shards() -> None:
    assert memory.compute_needed_gib(2**30) == 16
    assert memory.compute_needed_gib(2**30, weights=1, gradients=4, optimizer=4) == 2 + 14 / 4
    assert memory.compute_needed_gib(2**30, weights=2, gradients=2, optimizer=0) == 2
    assert memory.compute_needed_gib(2**30, in_buckets=True) == 16 + 4


def test_ddp_reserves_memory_for_gradient_buckets() -> None:
    """A V100 holds 25.6 GiB of state: 16 bytes of 1.5 billion parameters, and not 20."""
    parameters = 1_500_000_000

    def rejected(gpus: int) -> bool:
        node = Node("v", "v", gpu_type="V100", gpu_count=gpus, memory_gb=64)
        assert (
            memory.compute_needed_gib(parameters)
            < memory.compute_usable_gib([node])
            < memory.compute_needed_gib(parameters, in_buckets=True)
        )
        _, bad = recommend_frameworks(
            over(node, model_parameters=parameters, hyperparameters=recipes.choose_typical_sizes(parameters))
        )
        codes = {one.framework: [reason.code for reason in one.reasons] for one in bad}
        return "REJECTED_BY_MEMORY" in codes.get("pytorch-ddp", [])

    assert not rejected(1)
    assert rejected(2)


def test_the_smallest_gpu_decides_and_cpu_ranks_share_the_nodes_memory() -> None:
    assert memory.compute_usable_gib([A100, T4]) == 16 * memory.MAX_STATE_SHARE
    assert memory.compute_usable_gib([A100, Node("cpu", "cpu", memory_gb=8)]) == 8 * memory.MAX_STATE_SHARE


@pytest.mark.parametrize(
    ("nodes", "batch", "sizes"),
    [
        ((A100, V100), 8, [11, 11, 5, 5]),
        ((V100, A100), 8, [5, 5, 11, 11]),
        ((A100, V100), 1, [1, 1, 1, 1]),
        ((A100, T4), 4, [6, 6, 2, 2]),
        ((A100,), 4, [4, 4]),
    ],
)
def test_batch_shares_follow_gpu_speed(nodes: tuple[Node, ...], batch: int, sizes: list[int]) -> None:
    assert batch_shares.compute_batch_sizes(over(*nodes, hyperparameters={"batchSize": batch})) == sizes


@given(
    st.lists(st.tuples(st.sampled_from(sorted(gpus.GPUS)), st.integers(1, 8)), min_size=1, max_size=6),
    st.integers(1, 200),
)
def test_batch_shares_sum_to_the_batch_and_are_never_zero(kinds: list[tuple[str, int]], batch: int) -> None:
    nodes = [Node(f"n{at}", f"n{at}", gpu_type=kind, gpu_count=count) for at, (kind, count) in enumerate(kinds)]
    spec = over(*nodes, hyperparameters={"batchSize": batch}, options={"batchShare": "bySpeed"})
    sizes = batch_shares.compute_batch_sizes(spec)
    assert len(sizes) == spec.world_size
    assert sum(sizes) == batch * spec.world_size
    assert min(sizes) >= 1
    assert [batch_shares.build_rank_env(spec)[rank]["FERMI_LOCAL_BATCH_SIZE"] for rank in range(len(sizes))] == list(
        map(str, sizes)
    )


@pytest.mark.parametrize("framework", ["pytorch-ddp", "pytorch-fsdp"])
def test_batch_sharing_is_offered_with_its_effect_and_off_by_default(framework: str) -> None:
    spec = over(A100, V100, framework=framework)
    plugin = plugins.get_framework(framework)
    [offer] = [found for found in plugin.warnings(spec) if found.code.startswith("BATCH_SHARE")]
    assert offer.code == "BATCH_SHARE_OFFERED"
    assert offer.params["shares"] == "A100 11, V100 5"
    for lang in messages.LANGUAGES:
        assert "1.60" in messages.render_text(offer.code, lang, **offer.params)[1]  # 8 on a V100 against 5
    plan = plugin.plan(spec)
    assert not any("FERMI_LOCAL_BATCH_SIZE" in process.env for node in plan.nodes for process in node.processes)
    chosen = over(A100, V100, framework=framework, options={"batchShare": "bySpeed"})
    assert "BATCH_SHARE_BY_SPEED" in [found.code for found in plugin.warnings(chosen)]


def test_batch_sharing_is_not_offered_where_it_does_not_help() -> None:
    ddp = plugins.get_framework("ddp")
    emulated = job("env-001", "env-002")  # CPU processes are as fast as each other
    for spec in (over(A100), over(A100, V100, hyperparameters={"batchSize": 1}), emulated):
        assert [found.code for found in ddp.warnings(spec)] == []


def test_every_framework_is_either_recommended_or_rejected_with_reasons() -> None:
    for parameters in (10**6, 10**9, 10**10, 10**12):
        for nodes in ((A100,), (A100, T4), (Node("cpu", "cpu"),)):
            spec = over(*nodes, model_parameters=parameters, hyperparameters=recipes.choose_typical_sizes(parameters))
            good, bad = recommend_frameworks(spec)
            assert sorted(one.framework for one in [*good, *bad]) == sorted(plugins.FRAMEWORKS)
            for reason in (reason for one in [*good, *bad] for reason in one.reasons):
                assert all(messages.render_text(reason.code, lang, **reason.params)[0] for lang in messages.LANGUAGES)
            assert all(one.reasons for one in [*good, *bad])
