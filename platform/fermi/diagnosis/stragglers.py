"""Detects which rank slows a gang down, and whether the gang has become slower, from its ranks' progress, look after
look. Pure.

STRAGGLER            All others wait in collectives for a good part of their time, one rank hardly ever does: it is the
                     one they wait for. Shares of time need no common clock. It is compared with its peers alone, so it
                     is found from the first steps on. Why it is slow (`explain_slowness`) follows from where it is
                     between collectives, from what it uses, and from what its process waits for.
SLOWER_THAN_BEFORE   A step takes far longer than it did in this very attempt.

Both are reported after `NOTED_SECONDS` as information, and become a warning once they have lasted (`WARNING_SECONDS`):
other load on a machine comes and goes. A look at which a rank starts, compiles, evaluates or saves counts for neither.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from fermi.diagnosis import Evidence, Finding, Level, Where
from fermi.diagnosis.actions import ActionCode, build_action
from fermi.jobs.spec import RankProgress

STRAGGLER, SLOWER = "STRAGGLER", "SLOWER_THAN_BEFORE"
CODES = (STRAGGLER, SLOWER)

MIN_OTHERS_WAIT, MAX_OWN_WAIT, MIN_WAIT_GAP = 0.2, 0.3, 0.2
"""Shares of time: the others wait at least so much; the straggler waits less than this part of that, and so much less.
"""
SLOWER_FACTOR = 1.67
MIN_CLEAR_STEPS, MIN_STEPS, LONG_SECONDS = 3, 20, 30.0
"""Steps for which the same rank has been waited for: the fewest where nearly all time is lost or it takes so many
seconds, else the most."""
CLEAR_WAIT = 0.5
MAX_PAUSE_SHARE = 0.5
"""Where one step took more than this part of the time, it was that step: a rank that waited once for its data is no
straggler afterwards, though the shares of time still show it. The hang's rules examine such a step."""
NOTED_SECONDS, EARLY_SECONDS = 8.0, 12.0
"""Seconds until it is reported; in the first steps longer, because a window of looks may still hold what came before
them."""
WARNING_SECONDS = {STRAGGLER: 16.0, SLOWER: 90.0}
FIRST_STEPS, WARM_STEPS, WARM_LOOKS = 2, 20, 4
"""Steps after which ranks can be compared, and after which a run has settled; looks that make its past."""
STALE_SECONDS = 30.0
SLOW_CLOCK_SHARE = 0.9
NOTABLE_SHARE, EXPLAINING_SHARE = 0.05, 0.2
"""Share of the time in which a quota, a host or a lack of memory delays a rank, that is worth mentioning, and that
explains it."""
MIN_PLACE_SHARE = 0.3
"""Share of its time that a rank is in one place of its script, from which on this place is named."""
MUCH_IO_BYTES, BUSY_CPUS = 8 << 20, 0.5
"""Bytes per second that it moves, and processors that it uses, which show what it does."""
_LOADING = re.compile(
    r"torch/utils/data/|(?:^|[ /(])(?:datasets|webdataset|torchvision|torchaudio|PIL|cv2|streaming|tokenizers)/"
    r"|\b(?:load|read|fetch|collate|decode|augment|prefetch|tokeni[sz]e|__getitem__|next_batch|get_batch|batch)"
)
_WRITING = re.compile(
    r"torch/serialization|distributed/checkpoint/|(?:^|[ /(])safetensors/|\b(?:save|write|dump|checkpoint|upload|log)"
)
"""Places, as `at` and `inside` of a rank's progress have them, whose names show what is done there."""
RESOLVED_LOOKS = 2
"""Looks in a row without it, after which it is over."""
MAX_PACES = 720


@dataclass(frozen=True, slots=True)
class RankLocation:
    """Where a rank runs."""

    node_rank: int
    node: str


@dataclass(slots=True)
class _Streak:
    """Looks in a row that found the same. `step`, `since`: at the first of them; `newest` and `moved`: the step at the
    last, and since when it is that; `pause`: the longest time without a step, in seconds."""

    key: int
    since: float
    step: int
    newest: int
    moved: float
    pause: float = 0.0
    absent: int = 0
    reported: str = ""

    def record_step(self, step: int, moment: float) -> None:
        """Record the step at this time."""
        self.pause = max(self.pause, moment - self.moved)
        if step > self.newest:
            self.newest, self.moved = step, moment


@dataclass(slots=True)
class StepHistory:
    """What is kept of one attempt: seconds per step, the newest last, and what the last looks found."""

    paces: list[float] = field(default_factory=list)
    streaks: dict[str, _Streak] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FindingChanges:
    """Findings that are new or have become worse, and the codes of those that are over."""

    findings: Sequence[Finding] = ()
    resolved: Sequence[str] = ()


def detect_stragglers(
    history: StepHistory, pulses: Mapping[int, RankProgress], places: Mapping[int, RankLocation], now: float
) -> FindingChanges:
    """Return what has changed. The time is in unix seconds. `history` is updated."""
    alive = [pulse for pulse in pulses.values() if now - pulse.at < STALE_SECONDS]
    if not alive or any(pulse.phase != "running" or (pulse.step or 0) < FIRST_STEPS for pulse in alive):
        return FindingChanges()
    step, warm = max(pulse.step or 0 for pulse in alive), min(pulse.step or 0 for pulse in alive) >= WARM_STEPS
    paces = [pulse.step_seconds for pulse in alive if pulse.step_seconds]
    pace = median(paces) if paces and warm else None
    slowest = _find_straggler(alive)
    times = _compute_slowdown(history, pace) if pace else None
    found, over = [], []
    for code, key in ((STRAGGLER, slowest.rank if slowest else None), (SLOWER, 0 if times else None)):
        streak = _update_streak(history, code, key, step, now)
        if streak is None:
            continue
        if streak.absent >= RESOLVED_LOOKS:
            over += [code] if streak.reported else []
            del history.streaks[code]
        elif streak.key == key and (level := _choose_level(streak, code, alive, slowest, step, now)):
            streak.reported = level
            if code == STRAGGLER and slowest:
                found.append(_build_straggler_finding(alive, slowest, places, level, streak.since))
            elif pace:
                found.append(_build_slower_finding(history, pace, level, streak.since, now))
    if pace and SLOWER not in history.streaks:
        history.paces.append(pace)
        del history.paces[:-MAX_PACES]
    return FindingChanges(found, over)


def _find_straggler(alive: Sequence[RankProgress]) -> RankProgress | None:
    """Return the rank that waits least, where that is far less than all others do."""
    waits = sorted((pulse.waiting, pulse.rank) for pulse in alive if pulse.waiting is not None)
    if len(waits) < 2 or len(waits) < len(alive):
        return None
    (own, rank), (least, _), *_ = waits
    if least < MIN_OTHERS_WAIT or own > MAX_OWN_WAIT * least or least - own < MIN_WAIT_GAP:
        return None
    return next(pulse for pulse in alive if pulse.rank == rank)


def _compute_slowdown(history: StepHistory, pace: float) -> float | None:
    if len(history.paces) < WARM_LOOKS:
        return None
    times = pace / median(history.paces)
    return times if times >= SLOWER_FACTOR else None


def _update_streak(history: StepHistory, code: str, key: int | None, step: int, moment: float) -> _Streak | None:
    """Return the updated streak; None: nothing was found, now or before. What was not reported yet must be found at
    every look."""
    streak = history.streaks.get(code)
    if streak and streak.key != key:
        if streak.reported:
            streak.absent += 1
            return streak
        del history.streaks[code]
        streak = None
    if streak is None and key is not None:
        streak = history.streaks[code] = _Streak(key, moment, step, step, moment)
    if streak:
        streak.absent = 0
        streak.record_step(step, moment)
    return streak


def _choose_level(
    streak: _Streak, code: str, alive: Sequence[RankProgress], slowest: RankProgress | None, step: int, moment: float
) -> Level | None:
    """Return the level to report; None: it is not certain enough, or was reported already."""
    lasts = moment - streak.since
    clear = (
        code == SLOWER
        or lasts >= LONG_SECONDS
        or (slowest is not None and _compute_others_wait(alive, slowest) >= CLEAR_WAIT)
    )
    early = streak.step < WARM_STEPS
    if step - streak.step < (MIN_CLEAR_STEPS if clear else MIN_STEPS) or lasts < (
        EARLY_SECONDS if early else NOTED_SECONDS
    ):
        return None
    if streak.pause > MAX_PAUSE_SHARE * lasts:
        return None
    level = Level.WARN if lasts >= WARNING_SECONDS[code] else Level.INFO
    return None if streak.reported == level else level


def _compute_others_wait(alive: Sequence[RankProgress], slowest: RankProgress) -> float:
    return median(pulse.waiting or 0.0 for pulse in alive if pulse.rank != slowest.rank)


def _build_straggler_finding(
    alive: Sequence[RankProgress], slowest: RankProgress, places: Mapping[int, RankLocation], level: Level, since: float
) -> Finding:
    at = places.get(slowest.rank, RankLocation(0, "?"))
    others = _compute_others_wait(alive, slowest)
    params: dict[str, Any] = {
        "rank": slowest.rank, "node": at.node, "nodeRank": at.node_rank,
        "own": round(100 * (slowest.waiting or 0.0)), "others": round(100 * others),
    }  # fmt: skip
    if others < 0.95:
        params["slower"] = f"{1 / (1 - others):.1f}"
    if why := explain_slowness(alive, slowest):
        params["why"] = why
    if (place := slowest.place) and place.get("at") and (place.get("share") or 0.0) >= MIN_PLACE_SHARE:
        params |= {"at": place["at"], "share": round(100 * place["share"])}
    where = Where(slowest.rank, at.node_rank, at.node)
    actions = [build_action(ActionCode.SEE_LOG, rank=slowest.rank)]
    if "at" in params and params.get("why") != "starved":
        actions.insert(0, build_action(ActionCode.EDIT_SCRIPT, at=params["at"]))
    if len({place.node_rank for place in places.values()}) > 1:
        actions += [build_action(ActionCode.PREFLIGHT)]
        actions += [
            build_action(code, nodeRank=at.node_rank, node=at.node)
            for code in (ActionCode.USE_SPARE, ActionCode.WITHOUT_NODE, ActionCode.CORDON)
        ]
    return Finding(
        STRAGGLER,
        level,
        params,
        where=[where],
        since=since,
        evidence=_list_evidence(alive, slowest, where),
        actions=actions,
    )


def explain_slowness(alive: Sequence[RankProgress], slowest: RankProgress) -> str:
    """Return why a rank is slower than the others: `starved` (of a processor, by a quota, by other programs or by the
    host of its machine), `memory` (it waits for some), `loading`, `writing`, `computing`, or `waiting` for something
    else than its peers. Empty: unknown."""
    others = [pulse for pulse in alive if pulse.rank != slowest.rank]

    def share(name: str) -> float:
        """How much more of its time than of the others'."""
        return (getattr(slowest, name) or 0.0) - median(getattr(pulse, name) or 0.0 for pulse in others)

    if max(share("starved"), share("throttled"), share("stolen")) >= EXPLAINING_SHARE:
        return "starved"
    if share("squeezed") >= EXPLAINING_SHARE:
        return "memory"
    place = slowest.place or {}
    said = f"{place.get('inside') or ''} {place.get('at') or ''}"
    if _WRITING.search(said) or share("written") >= MUCH_IO_BYTES:
        return "writing"
    if _LOADING.search(said) or share("read") >= MUCH_IO_BYTES:
        return "loading"
    if slowest.cpu is None:
        return ""
    return "computing" if slowest.cpu >= BUSY_CPUS else "waiting"


def _list_evidence(alive: Sequence[RankProgress], slowest: RankProgress, where: Where) -> list[Evidence]:
    """Return what differs from the other ranks."""
    found = []
    others = [pulse for pulse in alive if pulse.rank != slowest.rank]
    if (place := slowest.place) and place.get("at") and place.get("share"):
        params = {"at": place["at"], "share": f"{100 * place['share']:.0f}"}
        elsewhere = Counter(str(one["at"]) for pulse in others if (one := pulse.place) and one.get("at"))
        params |= {"others": elsewhere.most_common(1)[0][0]} if elsewhere else {}
        params |= {"inside": place["inside"]} if place.get("inside") else {}
        found.append(Evidence("STRAGGLER_IS_AT", params, where=where))
    for name in ("written", "read"):
        rate, usual = getattr(slowest, name) or 0, median(getattr(pulse, name) or 0 for pulse in others)
        if rate - usual >= MUCH_IO_BYTES:
            params = {"rate": f"{rate / 2**20:.0f}", "others": f"{usual / 2**20:.0f}"}
            found.append(Evidence("STRAGGLER_WRITES" if name == "written" else "STRAGGLER_READS", params, where=where))
    cpus = [pulse.cpu for pulse in others if pulse.cpu is not None]
    if slowest.cpu is not None and cpus:
        params = {"cpu": f"{slowest.cpu:.2f}", "others": f"{median(cpus):.2f}"}
        idle = slowest.cpu < 0.5
        found.append(Evidence("STRAGGLER_IDLES" if idle else "STRAGGLER_COMPUTES", params, where=where))
    for name in ("starved", "throttled", "stolen", "squeezed"):
        share = getattr(slowest, name) or 0.0
        usual = median(getattr(pulse, name) or 0.0 for pulse in others)
        if share >= NOTABLE_SHARE and share >= 2 * usual:
            params = {"share": f"{100 * share:.0f}", "others": f"{100 * usual:.0f}"}
            found.append(Evidence(f"STRAGGLER_IS_{name.upper()}", params, where=where))
    found += _compare_gpu(others, slowest, where)
    sizes = [pulse.rss_bytes for pulse in others if pulse.rss_bytes]
    if slowest.rss_bytes and sizes and slowest.rss_bytes > 1.5 * median(sizes):
        params = {"size": f"{slowest.rss_bytes / 2**30:.1f}", "others": f"{median(sizes) / 2**30:.1f}"}
        found.append(Evidence("STRAGGLER_IS_LARGE", params, where=where))
    return found


def _compare_gpu(others: Sequence[RankProgress], slowest: RankProgress, where: Where) -> list[Evidence]:
    """Return a clock well below the others', or a limit that slows this GPU down and not most of them."""
    own = slowest.gpu or {}
    clocks = [one.gpu["clock"] for one in others if one.gpu and one.gpu.get("clock")]
    slowed = own.get("slowed")
    alone = slowed and 2 * sum((one.gpu or {}).get("slowed") == slowed for one in others) < len(others)
    if not own.get("clock") or not clocks or not (alone or own["clock"] < SLOW_CLOCK_SHARE * median(clocks)):
        return []
    params = {"clock": str(own["clock"]), "others": f"{median(clocks):.0f}"}
    params |= {"temperature": str(own["temperature"])} if own.get("temperature") is not None else {}
    params |= {"slowed": str(slowed)} if slowed in ("heat", "power", "hardware") else {}
    return [Evidence("STRAGGLER_GPU_IS_SLOW", params, where=where)]


def _build_slower_finding(history: StepHistory, pace: float, level: Level, since: float, moment: float) -> Finding:
    before = median(history.paces)
    params = {
        "now": f"{pace:.3g}", "before": f"{before:.3g}", "times": f"{pace / before:.1f}",
        "seconds": round(moment - since),
    }  # fmt: skip
    return Finding(
        SLOWER,
        level,
        params,
        since=since,
        actions=[build_action(ActionCode.PREFLIGHT), build_action(ActionCode.SEE_LOG, rank=0)],
    )
