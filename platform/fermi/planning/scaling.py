"""How well a choice of nodes is expected to scale: speed-up and efficiency, as ranges, with what they rest on. Pure.

A step is the ranks' own work, then what of the communication is not hidden behind it.

* Work: 6 operations per weight and token, forward and backward (Kaplan et al. 2020, §2.1), by GPUs that reach 30 to
  50 % of their peak (Narayanan et al. 2021, table 1), or 2 to 20 billion operations per second of a CPU process; and
  the recipe's `stepDelay`. The slowest rank sets the pace.
* Communication: a ring all-reduce sends 2 (n - 1)/n of the gradients' bytes over each link (Patarasuk & Yuan 2009), and
  3 (n - 1)/n where weights are split, too (ZeRO, §7.2). The slowest link sets the pace, and each of the 2 (nodes - 1)
  steps of a ring takes half a round trip.
* Overlap: gradients travel in buckets of 25 MiB while the rest of the backward pass, two thirds of the work, goes on
  (Li et al. 2020, §3.2.3). At best only the last bucket is seen; at worst, all are.

Loading of data, noise of other users and a pipeline's bubble are not counted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fermi.jobs import gpus, recipes
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import JobSpec, Node, Problem
from fermi.planning import plugins
from fermi.schema import humanize

Range = tuple[float, float]

REACHED_PEAK_SHARE: Range = (0.3, 0.5)
CPU_FLOPS: Range = (2e9, 20e9)
UNKNOWN_TFLOPS = 65.0
"""TFLOPS of a GPU that is not in the table: a T4's."""
BACKWARD_SHARE = 2 / 3
BUCKET_BYTES = 25 * 2**20

NODE_BANDWIDTH: Range = (10e9, 200e9)
CPU_NODE_BANDWIDTH: Range = (0.5e9, 5e9)
ZONE_BANDWIDTH: Range = (1.25e9, 12.5e9)
INFINIBAND_BANDWIDTH: Range = (12.5e9, 50e9)
CROSS_ZONE_BANDWIDTH: Range = (0.125e9, 1.25e9)
"""Bytes per second that are assumed where nothing was measured: PCIe to NVLink; memory; 10 to 100, 100 to 400 and 1 to
10 Gbit/s."""
ZONE_RTT_MS: Range = (0.05, 0.5)
CROSS_ZONE_RTT_MS: Range = (5.0, 50.0)
"""Round trips; between zones the requirement document's (004)."""


@dataclass(frozen=True, slots=True)
class NetworkSpeed:
    """The slowest link between the nodes, in bytes per second and milliseconds. `measured`: the id of the pre-flight
    test that measured it."""

    bandwidth: Range
    rtt_ms: Range
    measured: str = ""


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """The estimate for the first `nodes` of the chosen ones. `theoretical`: speed-up over one node by the number of
    GPUs."""

    nodes: int
    ranks: int
    theoretical: float
    speedup: Range
    efficiency: Range


@dataclass(frozen=True, slots=True)
class ScalingEstimate:
    """The estimate; the last one of `rows` is the choice. `reasons` have texts in `fermi.messages`."""

    rows: Sequence[ScalingRow]
    step_seconds: Range
    tokens_per_second: Range
    network: NetworkSpeed
    reasons: Sequence[Problem]


def estimate_scaling(job: JobSpec, network: NetworkSpeed | None = None) -> ScalingEstimate | None:
    """Return how the job is expected to scale, or None where size or batch of the model are unknown. `network`: what a
    pre-flight test of these nodes measured; assumed without one."""
    framework = plugins.get_framework(job.framework)
    job = framework.propose(job).to(job)
    parameters, tokens = _count_parameters(job), _count_tokens(job)
    if parameters is None or tokens is None:
        return None
    nodes = [at.node for at in place_nodes(job.nodes, job.master)]
    network = network or assume_network_speed(nodes)
    data = job.strategy.get("dataParallel") or job.world_size
    shared = data < job.world_size and framework.info.splits_model
    model = _Model(job, parameters, tokens / job.world_size, data if shared else job.world_size,
                   framework.info.splits_state)  # fmt: skip
    counts = sorted({1, len(nodes), *(2**power for power in range(1, 13) if 2**power < len(nodes))})
    steps = {count: model.step(nodes[:count], network) for count in (counts if not shared else [len(nodes)])}
    rows = [_build_row(nodes, count, steps) for count in steps]
    last = steps[len(nodes)]
    speeds = (tokens / last.seconds[1], tokens / last.seconds[0])
    return ScalingEstimate(rows, last.seconds, speeds, network, _explain(job, nodes, network, last, shared))


def read_network_speed(report: Mapping[str, Any], nodes: Sequence[Node], preflight: str) -> NetworkSpeed | None:
    """Return the slowest link of these nodes from a pre-flight test's report; None where it lacks one of them."""
    chosen = {node.id for node in nodes}
    pairs = [pair for pair in report.get("pairs", ()) if {pair["from"], pair["to"]} <= chosen]
    speeds = [pair["bandwidthMbps"] for pair in pairs if pair.get("bandwidthMbps")]
    trips = [pair["rttMs"] for pair in pairs if pair.get("rttMs") is not None]
    if not speeds or not trips or len({pair["from"] for pair in pairs} | {pair["to"] for pair in pairs}) < len(chosen):
        return None
    slowest = min(speeds) * 1e6 / 8
    return NetworkSpeed((slowest, slowest), (max(trips), max(trips)), preflight)


def assume_network_speed(nodes: Sequence[Node]) -> NetworkSpeed:
    """Return the speed assumed for a network that was not measured."""
    if len({node.zone for node in nodes}) > 1:
        return NetworkSpeed(CROSS_ZONE_BANDWIDTH, CROSS_ZONE_RTT_MS)
    fast = all(node.network.get("infiniband") for node in nodes)
    return NetworkSpeed(INFINIBAND_BANDWIDTH if fast else ZONE_BANDWIDTH, ZONE_RTT_MS)


def compute_deviation(measured_value: float, expected: Range) -> float:
    """Return how far a measured figure is from a range, as a share of its nearer end; 0 = within."""
    low, high = expected
    return (
        measured_value / low - 1
        if measured_value < low
        else measured_value / high - 1
        if measured_value > high
        else 0.0
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """Ranges from fast to slow. `best`, `worst`: (work, seconds) where communication costs the smallest and the largest
    share."""

    seconds: Range
    work: Range
    communication: Range
    bytes: Range
    best: tuple[float, float]
    worst: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Model:
    job: JobSpec
    parameters: int
    tokens: float  # per rank and step
    data: int
    splits_state: bool

    def step(self, nodes: Sequence[Node], network: NetworkSpeed) -> _Step:
        ranks, world = sum(node.processes for node in nodes), self.job.world_size
        group = self.data if self.data < world else ranks
        operations = 6 * self.parameters * self.tokens
        delay = self.job.hyperparameters.get("stepDelay", 0) if self.job.entrypoint is None else 0
        delay = float(delay) if recipes.GPT["stepDelay"].accepts(delay) else 0.0
        slow, fast = _find_flops(nodes)
        computed = (operations / fast, operations / slow)
        work = (delay + computed[0], delay + computed[1])
        width: Range = (4, 4) if gpus.choose_precision(nodes) == "float32" else (2, 4)
        weights = self.parameters * (self.data / world if self.data < world else 1)
        bytes_ = (weights * width[0], weights * width[1])
        sent = (2 * (group - 1) / group, (3 if self.splits_state else 2) * (group - 1) / group)
        inside = NODE_BANDWIDTH if all(node.has_cuda for node in nodes) else CPU_NODE_BANDWIDTH
        bandwidth = network.bandwidth if len(nodes) > 1 else inside
        hops = 2 * (len(nodes) - 1)
        trip = (hops * network.rtt_ms[0] / 2e3, hops * network.rtt_ms[1] / 2e3)
        buckets = max(1, math.ceil(bytes_[1] / BUCKET_BYTES))
        least = sent[0] * bytes_[0] / bandwidth[1] + trip[0]
        most = sent[1] * bytes_[1] / bandwidth[0] + trip[1] * buckets
        if group == 1:
            least = most = 0.0

        def hidden(at: float) -> float:
            return max(least / buckets, least - BACKWARD_SHARE * at)

        return _Step(
            seconds=(work[0] + hidden(computed[0]), work[1] + most),
            work=work,
            communication=(least, most),
            bytes=bytes_,
            best=(work[1], work[1] + hidden(computed[1])),
            worst=(work[0], work[0] + most),
        )


def _build_row(nodes: Sequence[Node], count: int, steps: Mapping[int, _Step]) -> ScalingRow:
    """Compare with one node; where the model is split over all of them, with ranks that need not communicate."""
    ranks, one = (sum(node.processes for node in nodes[:number]) for number in (count, 1))
    step, alone = steps[count], steps.get(1)
    if alone is None:
        found, theoretical = (step.worst[0] / step.worst[1], step.best[0] / step.best[1]), float(ranks)
    else:
        found, theoretical = (alone.worst[1] / step.worst[1], alone.best[1] / step.best[1]), ranks / one
    low, high = sorted(min(1.0, share) for share in found)
    return ScalingRow(count, ranks, theoretical, (low * theoretical, high * theoretical), (low, high))


def _find_flops(nodes: Sequence[Node]) -> Range:
    """Operations per second of the slowest rank."""
    if not all(node.has_cuda for node in nodes):
        return CPU_FLOPS
    peak = min(gpus.find_tflops(node.gpu_type) or UNKNOWN_TFLOPS for node in nodes) * 1e12
    return peak * REACHED_PEAK_SHARE[0], peak * REACHED_PEAK_SHARE[1]


def _count_parameters(job: JobSpec) -> int | None:
    """A script that is told layers and hidden size is taken for a GPT of these."""
    found = recipes.count_model_parameters(job)
    told = {"layers", "hiddenSize"} <= job.hyperparameters.keys()
    return recipes.count_gpt_parameters(job.hyperparameters) if found is None and told else found


def _count_tokens(job: JobSpec) -> int | None:
    """Per optimizer step, of all ranks. A script of the user's own has what it was given and nothing else."""
    batch = plugins.get_framework(job.framework).effective_batch(job)
    length = job.hyperparameters.get("sequenceLength", None if job.entrypoint else recipes.DEFAULT_SEQUENCE_LENGTH)
    known = length is not None and recipes.GPT["sequenceLength"].accepts(length)
    return batch.effective * int(length) if batch and known else None


def _explain(job: JobSpec, nodes: Sequence[Node], network: NetworkSpeed, step: _Step, shared: bool) -> list[Problem]:
    """The requirement document's influences (004): communication, waiting, loading of data, bandwidth."""
    found = []
    if len(nodes) > 1:
        link = {"bandwidth": _format_range(*(f"{rate * 8 / 1e9:.3g}" for rate in network.bandwidth)),
                "rtt": _format_range(*(f"{trip:.3g}" for trip in network.rtt_ms))}  # fmt: skip
        code = "SCALING_NETWORK_MEASURED" if network.measured else "SCALING_NETWORK_ASSUMED"
        found.append(Problem("", code, {**link, "preflight": network.measured}))
    params = {
        "size": _format_range(*map(humanize.format_bytes, step.bytes)),
        "seconds": _format_range(*map(_format_ms, step.communication)),
    }
    found.append(Problem("", "SCALING_COMMUNICATION", params))
    delay = job.hyperparameters.get("stepDelay") if job.entrypoint is None else None
    code = "SCALING_STEP_GIVEN" if delay else "SCALING_STEP_ASSUMED"
    found.append(Problem("", code, {"seconds": _format_range(*map(_format_ms, step.work)), "delay": delay or 0}))
    speeds = {gpus.find_tflops(node.gpu_type) for node in nodes if node.has_cuda}
    found.append(Problem("", "SCALING_WAITING_UNEQUAL" if len(speeds) > 1 else "SCALING_WAITING"))
    if shared:
        found.append(Problem("", "SCALING_SPLIT"))
    return [*found, Problem("", "SCALING_LOADING")]


def _format_ms(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _format_range(low: str, high: str) -> str:
    return low if low == high else f"{low} – {high}"
