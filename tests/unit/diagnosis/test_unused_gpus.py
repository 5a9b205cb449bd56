"""Ranks that hold GPUs and train without them."""

from fermi import messages
from fermi.diagnosis import Level, unused_gpus
from fermi.diagnosis.stragglers import FindingChanges, RankLocation
from fermi.jobs.spec import RankProgress

PLACES = {rank: RankLocation(rank // 2, f"env-{rank // 2}") for rank in range(4)}
NOW = 1e9


def judge_at(
    history: unused_gpus.UnusedGpuHistory, moment: float, *opened: bool | None, build: bool | None = None
) -> FindingChanges:
    pulses = {rank: RankProgress(rank, NOW + moment, gpu_open=one, cpu_build=build) for rank, one in enumerate(opened)}
    return unused_gpus.detect_unused_gpus(history, pulses, PLACES, NOW + moment)


def test_ranks_without_gpu_use_are_named_once_until_the_first_use() -> None:
    history = unused_gpus.UnusedGpuHistory()
    assert judge_at(history, 0, True, False, True, False) == FindingChanges()
    news = judge_at(history, unused_gpus.LASTING_SECONDS, True, False, True, False)
    [finding] = news.findings
    assert (finding.level, [(one.rank, one.node) for one in finding.where]) == (
        Level.WARN,
        [(1, "env-0"), (3, "env-1")],
    )
    assert finding.since == NOW
    message = messages.render_text(finding.code, "en", **finding.params)[0]
    assert message.startswith("Rank 1, 3 trains on the CPU: env-0 has GPUs")
    assert "没有使用 GPU" in messages.render_text(finding.code, "zh", **finding.params)[0]
    assert judge_at(history, 20, True, False, True, False) == FindingChanges()
    [fewer] = judge_at(history, 24, True, True, True, False).findings
    assert fewer.params["ranks"] == "3"
    assert judge_at(history, 28, True, True, True, True) == FindingChanges(resolved=[unused_gpus.GPU_NOT_USED])


def test_a_pytorch_build_without_cuda_is_named_as_the_cause() -> None:
    history = unused_gpus.UnusedGpuHistory()
    judge_at(history, 0, False, False, build=True)
    [finding] = judge_at(history, 15, False, False, build=True).findings
    assert "was built without CUDA" in messages.render_text(finding.code, "en", **finding.params)[0]


def test_unknown_ended_and_cpu_ranks_are_no_finding() -> None:
    history = unused_gpus.UnusedGpuHistory()
    for moment in range(0, 60, 4):
        assert judge_at(history, moment, None, None) == FindingChanges()
    of_cpus = {7: RankProgress(7, NOW, gpu_open=False)}
    assert unused_gpus.detect_unused_gpus(history, of_cpus, PLACES, NOW) == FindingChanges()
    assert unused_gpus.detect_unused_gpus(history, of_cpus, PLACES, NOW + 20) == FindingChanges()
    judge_at(history, 60, False)
    assert (
        unused_gpus.detect_unused_gpus(history, {0: RankProgress(0, NOW, gpu_open=True)}, PLACES, NOW + 90)
        == FindingChanges()
    )
    assert judge_at(history, 200, True) == FindingChanges()


def test_a_single_old_observation_is_no_finding() -> None:
    history = unused_gpus.UnusedGpuHistory()
    judge_at(history, 0, False)
    stale = {0: RankProgress(0, NOW, gpu_open=False)}
    assert unused_gpus.detect_unused_gpus(history, stale, PLACES, NOW + 300) == FindingChanges()
    [finding] = judge_at(history, 301, False).findings
    assert finding.since == NOW
    assert (
        unused_gpus.detect_unused_gpus(history, {}, PLACES, NOW + 400) == FindingChanges()
    )  # told, and no news of it since
    assert judge_at(history, 401, None) == FindingChanges(resolved=[unused_gpus.GPU_NOT_USED])
