"""What a run was worth: utilisation, waits by class and by width, and work that preemption cost."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fermi.scheduler.snapshot import classify_priority
from tests.scheduler.engine import DAY, Engine, Job
from tests.scheduler.trace import width

BANDS = {"1 GPU": (1, 1), "2-4 GPUs": (2, 4), "8 GPUs": (8, 8), "16 GPUs and more": (16, 10_000)}


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds of the tasks of a kind."""

    tasks: int
    median: float
    high: float  # 95 of 100 waited no longer
    mean: float


@dataclass(frozen=True, slots=True)
class Figures:
    """`held` and `training`: of the GPUs' time in the days of the trace. `lost`: of the held GPU time, work that was
    done again because of preemptions, and what starting and ending once more took."""

    held: float
    training: float
    waits: dict[str, Waits]
    preemptions: int
    lost: float
    time_up: int
    decisions: int


def figures(engine: Engine, days: float) -> Figures:
    end = days * DAY
    capacity = end * sum(place.gpus for place in engine.places.values())
    held = sum(max(0.0, min(until, end) - since) * gpus for since, until, gpus in engine.busy)
    everything = sum((until - since) * gpus for since, until, gpus in engine.busy)
    jobs = list(engine.jobs.values())
    kinds: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        for kind in ("all", classify_priority(job.ask.priority).name.lower(), band(job)):
            kinds[kind].append(job.waited)
    done = sum(share(job, end) * (job.work if job.finished else job.saved) * width(job) for job in jobs)
    lost = sum(
        (sum(job.lost.get("preemption", ())) + job.preemptions * (job.starting + engine.grace)) * width(job)
        for job in jobs
    )
    order = ["all", "low", "normal", "high", "urgent", *BANDS]
    return Figures(
        held / capacity, done / capacity, {kind: waits(kinds[kind]) for kind in order if kinds[kind]},
        sum(job.preemptions for job in jobs), lost / everything,
        sum(not job.finished for job in jobs), engine.decisions,
    )  # fmt: skip


def share(job: Job, end: float) -> float:
    """Of its work, what was done by then, where it went on evenly."""
    if job.first_start is None or job.ended is None or job.first_start >= end:
        return 0.0
    return (min(job.ended, end) - job.first_start) / max(job.ended - job.first_start, 1.0)


def band(job: Job) -> str:
    return next(name for name, (low, high) in BANDS.items() if low <= width(job) <= high)


def waits(found: Iterable[float]) -> Waits:
    ordered = sorted(found)
    at = lambda part: ordered[min(len(ordered) - 1, int(part * len(ordered)))]  # noqa: E731
    return Waits(len(ordered), at(0.5), at(0.95), sum(ordered) / len(ordered))


def report(found: Mapping[str, Figures]) -> str:
    """One column per policy: shares of GPU time, and how long tasks waited: median / 95 of 100 / mean."""
    some = next(iter(found.values()))
    rows = [
        ("GPU time held", [f"{one.held:.1%}" for one in found.values()]),
        ("GPU time that trained", [f"{one.training:.1%}" for one in found.values()]),
        ("preemptions", [f"{one.preemptions:,}" for one in found.values()]),
        ("of the held time, lost by them", [f"{one.lost:.2%}" for one in found.values()]),
    ]
    for kind, ours in some.waits.items():
        cells = [one.waits[kind] for one in found.values()]
        texts = [" / ".join(map(lasts, (one.median, one.high, one.mean))) for one in cells]
        rows.append((f"wait: {kind} ({ours.tasks:,})", texts))
    lines = [f"{'':32}" + "".join(f"{name:>26}" for name in found)]
    return "\n".join(lines + [f"{name:32}" + "".join(f"{cell:>26}" for cell in cells) for name, cells in rows])


def lasts(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / DAY:.1f} d"
