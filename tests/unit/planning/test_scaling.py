"""What is expected of a choice of nodes: what everybody knows of scaling, and what it rests on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi import messages
from fermi.jobs import recipes
from fermi.jobs.spec import Entrypoint, JobSpec, Node
from fermi.planning import plugins, scaling
from fermi.planning.scaling import NetworkSpeed, ScalingEstimate
from tests.goldens import gpt3, job

BERT = {"layers": 24, "hiddenSize": 1024, "heads": 16, "sequenceLength": 512, "vocabSize": 30522, "batchSize": 32}
FAST, SLOW = NetworkSpeed((12.5e9, 12.5e9), (0.1, 0.1)), NetworkSpeed((0.125e9, 0.125e9), (30.0, 30.0))


def over(count: int, gpus: str = "A100", framework: str = "pytorch-ddp", **changes: object) -> JobSpec:
    nodes = tuple(Node(f"n{n}", f"n{n}", zone="a", gpu_type=gpus, gpu_count=2) for n in range(count))
    return JobSpec("task", framework, nodes, "n0", hyperparameters={**BERT, **changes})


def expected(job: JobSpec, network: NetworkSpeed | None = None) -> ScalingEstimate:
    found = scaling.estimate_scaling(job, network)
    assert found is not None
    return found


def test_rows_have_the_documents_columns_relative_to_one_node() -> None:
    rows = expected(over(8)).rows
    assert [(row.nodes, row.ranks, row.theoretical) for row in rows] == [(1, 2, 1), (2, 4, 2), (4, 8, 4), (8, 16, 8)]
    assert rows[0].efficiency == rows[0].speedup == (1, 1)
    assert [row.nodes for row in expected(over(3)).rows] == [1, 2, 3]


def test_slower_networks_smaller_batches_and_less_accumulation_scale_worse() -> None:
    def efficiency(job: JobSpec, network: NetworkSpeed = FAST) -> tuple[float, float]:
        return expected(job, network).rows[-1].efficiency

    usual = efficiency(over(4))
    assert efficiency(over(4), SLOW) < usual
    assert efficiency(over(4, batchSize=2)) < usual
    assert efficiency(over(4, gradientAccumulationSteps=8)) > usual
    assert efficiency(over(4, "H100"), SLOW)[0] < efficiency(over(4), SLOW)[0]


def test_an_all_reduce_takes_the_time_of_a_ring() -> None:
    """Single precision at worst, by 4 ranks on 2 nodes over 1 GB/s: 2 · 3/4 of the gradients' bytes."""
    slow, fast = (expected(over(2), NetworkSpeed((rate, rate), (0.0, 0.0))).step_seconds[1] for rate in (1e9, 1e18))
    assert slow - fast == pytest.approx(2 * 3 / 4 * 4 * recipes.count_gpt_parameters(BERT) / 1e9)


def test_a_step_of_fixed_cost_scales_almost_ideally() -> None:
    found = expected(job("env-001", "env-002", hyperparameters={"stepDelay": 0.5}))
    assert found.step_seconds[0] > 0.5
    assert found.rows[-1].efficiency[0] > 0.98
    assert "SCALING_STEP_GIVEN" in {reason.code for reason in found.reasons}


def test_the_slowest_gpu_limits_the_others() -> None:
    mixed = (*over(1).nodes, Node("old", "old", zone="a", gpu_type="V100", gpu_count=2))
    found = expected(JobSpec("task", "pytorch-ddp", mixed, "n0", hyperparameters=BERT), FAST)
    assert found.rows[-1].efficiency[1] < 0.5
    assert "SCALING_WAITING_UNEQUAL" in {reason.code for reason in found.reasons}


def test_a_split_model_is_compared_with_ranks_without_communication() -> None:
    for framework in ("megatron-lm", "megatron-deepspeed"):
        found = expected(gpt3(framework=framework))
        [row] = found.rows
        assert (row.nodes, row.ranks, row.theoretical) == (8, 64, 64)
        assert 0.9 < row.efficiency[0] <= row.efficiency[1] <= 1
        assert "SCALING_SPLIT" in {reason.code for reason in found.reasons}


def test_an_unknown_model_has_no_estimate() -> None:
    assert scaling.estimate_scaling(gpt3(framework="pytorch-ddp", hyperparameters={}, strategy={}, options={})) is None


def test_the_slowest_measured_link_counts() -> None:
    nodes = over(2).nodes
    pairs = [{"from": "n0", "to": "n1", "rttMs": 0.2, "bandwidthMbps": 8000.0},
             {"from": "n1", "to": "n0", "rttMs": 0.4, "bandwidthMbps": 4000.0},
             {"from": "n1", "to": "else", "rttMs": 90.0, "bandwidthMbps": 1.0}]  # fmt: skip
    assert scaling.read_network_speed({"pairs": pairs}, nodes, "preflight-1") == NetworkSpeed(
        (5e8, 5e8), (0.4, 0.4), "preflight-1"
    )
    assert scaling.read_network_speed({"pairs": pairs}, over(3).nodes, "preflight-1") is None
    assert scaling.read_network_speed({}, nodes, "preflight-1") is None


def test_the_deviation_is_measured_from_the_nearer_end() -> None:
    assert [scaling.compute_deviation(found, (10, 20)) for found in (5, 10, 15, 20, 30)] == [-0.5, 0, 0, 0, 0.5]


@pytest.mark.parametrize("framework", plugins.FRAMEWORKS)
@given(nodes=st.integers(1, 9), gpus=st.sampled_from(["A100", "T4", "unheard of"]), emulated=st.booleans())
def test_the_estimate_never_exceeds_the_ideal(framework: str, nodes: int, gpus: str, emulated: bool) -> None:
    chosen = tuple(Node(f"n{n}", f"n{n}", gpu_type=gpus, gpu_count=2, emulated=emulated) for n in range(nodes))
    spec = JobSpec("task", framework, chosen, "n0")
    if plugins.get_framework(framework).effective_batch(spec) is None:  # it trains only what a script is told
        told = {"batchSize": 8, "sequenceLength": 64}
        spec = replace(spec, entrypoint=Entrypoint("train.py"), model_parameters=10**8, hyperparameters=told)
    found = expected(spec)
    for row in found.rows:
        assert 0 <= row.efficiency[0] <= row.efficiency[1] <= 1
        assert row.speedup[1] <= row.theoretical
    assert 0 < found.tokens_per_second[0] <= found.tokens_per_second[1]
    for reason in found.reasons:
        assert all(messages.render_text(reason.code, lang, **reason.params)[0] for lang in ("zh", "en"))
