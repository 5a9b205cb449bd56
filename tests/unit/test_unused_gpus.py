"""Ranks that hold GPUs and train without them."""

from fermi import messages
from fermi.diagnosis import Level, unused_gpus
from fermi.diagnosis.stragglers import News, Place
from fermi.jobs.spec import PulseSeen

PLACES = {rank: Place(rank // 2, f"env-{rank // 2}") for rank in range(4)}
NOW = 1e9


def judge_at(history: unused_gpus.History, moment: float, *opened: bool | None, build: bool | None = None) -> News:
    pulses = {rank: PulseSeen(rank, NOW + moment, gpu_open=one, cpu_build=build) for rank, one in enumerate(opened)}
    return unused_gpus.judge(history, pulses, PLACES, NOW + moment)


def test_ranks_that_stay_without_a_gpu_are_named_once_and_it_is_over_with_the_first_use() -> None:
    history = unused_gpus.History()
    assert judge_at(history, 0, True, False, True, False) == News()
    news = judge_at(history, unused_gpus.LASTING, True, False, True, False)
    [finding] = news.found
    assert (finding.level, [(one.rank, one.node) for one in finding.where]) == (
        Level.WARN,
        [(1, "env-0"), (3, "env-1")],
    )
    assert finding.since == NOW
    message = messages.text(finding.code, "en", **finding.params)[0]
    assert message.startswith("Rank 1, 3 trains on the CPU: env-0 has GPUs")
    assert "没有使用 GPU" in messages.text(finding.code, "zh", **finding.params)[0]
    assert judge_at(history, 20, True, False, True, False) == News()
    [fewer] = judge_at(history, 24, True, True, True, False).found
    assert fewer.params["ranks"] == "3"
    assert judge_at(history, 28, True, True, True, True) == News(over=[unused_gpus.GPU_NOT_USED])


def test_a_build_without_cuda_is_named_as_the_cause() -> None:
    history = unused_gpus.History()
    judge_at(history, 0, False, False, build=True)
    [finding] = judge_at(history, 15, False, False, build=True).found
    assert "was built without CUDA" in messages.text(finding.code, "en", **finding.params)[0]


def test_what_is_not_known_has_ended_or_has_no_gpu_is_no_finding() -> None:
    history = unused_gpus.History()
    for moment in range(0, 60, 4):
        assert judge_at(history, moment, None, None) == News()
    of_cpus = {7: PulseSeen(7, NOW, gpu_open=False)}
    assert unused_gpus.judge(history, of_cpus, PLACES, NOW) == News()
    assert unused_gpus.judge(history, of_cpus, PLACES, NOW + 20) == News()
    judge_at(history, 60, False)
    assert unused_gpus.judge(history, {0: PulseSeen(0, NOW, gpu_open=True)}, PLACES, NOW + 90) == News()
    assert judge_at(history, 200, True) == News()


def test_one_look_long_ago_is_no_finding_and_what_cannot_be_read_any_more_is_over() -> None:
    history = unused_gpus.History()
    judge_at(history, 0, False)
    stale = {0: PulseSeen(0, NOW, gpu_open=False)}
    assert unused_gpus.judge(history, stale, PLACES, NOW + 300) == News()
    [finding] = judge_at(history, 301, False).found
    assert finding.since == NOW
    assert unused_gpus.judge(history, {}, PLACES, NOW + 400) == News()  # told, and no news of it since
    assert judge_at(history, 401, None) == News(over=[unused_gpus.GPU_NOT_USED])
