"""Diagnoses a task in any state: facts → one line, and findings, worst and newest first. Pure.

What an attempt's runners and the platform found is stored and is combined with what follows from the rest: the task's
reason, how its earlier attempts ended, who holds what it waits for, which ranks have not started. Every state has an
answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from fermi.diagnosis import Action, Evidence, Finding, Level, Where, advice
from fermi.diagnosis.actions import Do, in_order, take
from fermi.diagnosis.root_cause import UNCAUGHT
from fermi.jobs.causes import BY_RANKS
from fermi.jobs.spec import Cause, Problem, PulseSeen, RankSeen
from fermi.messages import Words

NORMAL = frozenset(
    {"DATASET_PREPARING", "WAITING_FOR_ENVIRONMENTS", "WAITING_FOR_CAPACITY", "WAITING_FOR_TURN",
     "WAITING_FOR_RESERVATION", "WAITING_FOR_MAINTENANCE", "WAITING_FOR_MIN_RUN", "MAKING_ROOM", "LIMIT_GPUS",
     "LIMIT_TASKS", "LIMIT_USER_GPUS", "LIMIT_USER_TASKS", "GAVE_WAY", "PAUSED", "PREFLIGHT_RUNNING", "DRILL_RUNNING",
     "QUEUE_WAITING", "RESIZING", "COMPLETED", "COMPLETED_AND_KILLED", "COMPLETED_WITHOUT_STEP", "STOPPED_BY_USER",
     "STOPPED_AND_KILLED"}
)  # fmt: skip
"""Reasons to wait or to end with which nothing is wrong."""
LOOPS = frozenset({"CRASH_LOOP", "HANG_LOOP"})
"""Reasons whose cause is the end of the last attempt."""
DOUBTS = frozenset({"HANG_SUSPECTED"})
"""Codes that may turn out to be harmless, whatever their level; until then the task is not reported as healthy."""
MOST_TOLD = 5
"""Earlier attempts that are listed."""
MOST_NAMED = 8
_ORDER = [Level.FAIL, Level.WARN, Level.INFO]


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that started. `outcome`: with what is declared of it; None: its end is unknown. `from_step`: the step
    of the checkpoint that it resumed from, `last_step`: how far rank 0 came; None: unknown."""

    number: int
    began: float
    outcome: Cause | None = None
    ended: float | None = None
    resumed_from: str = ""
    from_step: int | None = None
    last_step: int | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """An environment that the task wants and another task holds. `name`, `owner`: where the reader may know them."""

    environment: str
    task: str
    since: float
    name: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A task that must end first. `name`, `task`: where the reader may know them. `until`: when it ends; None:
    unknown."""

    task: str = ""
    name: str = ""
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A task's position in the queue, and when it probably starts, between `early` and `late`; None: unknown. `late`
    alone None: or any time later. `sooner`: changes that would let it start now (`fermi.scheduler.what_if`)."""

    number: int
    of: int
    begins: float | None = None
    early: float | None = None
    late: float | None = None
    ahead: Sequence[Ahead] = ()
    sooner: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """A finding with its attempt, and until when it held; None: it still holds, or did to the attempt's end."""

    finding: Finding
    attempt: int
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a task. Times are unix seconds. `reason`: the task's own, with what is declared of it.
    `ends_at`: when its present state times out; `begins_at`: when its back-off is over. `next_step`: the step of the
    checkpoint that the next attempt resumes from. `ranks`: as the newest observation has them. `step`: the newest that
    was printed, at `stepped_at`."""

    state: str
    since: float
    moment: float
    nodes: Sequence[str]
    world_size: int
    reason: Cause | None = None
    ends_at: float | None = None
    begins_at: float | None = None
    attempt: int = 0
    max_attempts: int = 1
    attempts: Sequence[Attempt] = ()
    next_step: int | None = None
    ranks: Sequence[RankSeen] = ()
    pulses: Mapping[int, PulseSeen] = field(default_factory=dict)
    stored: Sequence[Told] = ()
    holders: Sequence[Holding] = ()
    line: Line | None = None
    step: int | None = None
    stepped_at: float | None = None
    total_steps: int | None = None

    @property
    def final(self) -> bool:
        return self.state in ("succeeded", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line (`summary`), and the findings."""

    healthy: bool
    summary: Words
    findings: tuple[Told, ...]


def diagnose(facts: Facts) -> Diagnosis:
    """Return the diagnosis of a task."""
    told = [
        replace(one, finding=replace(one.finding, actions=in_order(one.finding.actions)))
        for one in _together([*filter(None, (_now(facts),)), *_before(facts)], facts.stored)
    ]
    told.sort(key=lambda one: (one.until is not None, _ORDER.index(one.finding.level), -(one.finding.since or 0.0)))
    wrong = [one for one in told if _counts(facts, one)]
    healthy = not wrong and facts.state != "failed"
    return Diagnosis(healthy, _summary(facts, wrong), tuple(told))


def _together(said: Sequence[Told], stored: Sequence[Told]) -> list[Told]:
    """Return the task's own findings and the stored ones, each once: a hang is both."""
    told, twice = [], set[int]()
    for one in said:
        same = next((found for found in stored if _is_same(one, found)), None)
        twice |= {id(same)} if same else set()
        told.append(replace(one, finding=_merged(one.finding, same.finding)) if same else one)
    return [*(one for one in stored if id(one) not in twice), *told]


def _is_same(said: Told, found: Told) -> bool:
    """Return whether two findings are the same. An exception without a known cause says no more than the end that it
    caused; and what was found of the attempt at which a loop was detected is the cause that the loop names."""
    if said.finding.code in LOOPS and said.attempt == found.attempt and found.until is None:
        params = said.finding.params
        return found.finding.code in (UNCAUGHT, params.get("why"), params.get("cause"))
    ranks = [where.rank for where in said.finding.where], [where.rank for where in found.finding.where]
    ended = said.finding.code in BY_RANKS and found.finding.code == UNCAUGHT and ranks[0] == ranks[1]
    return said.attempt == found.attempt and (said.finding.code == found.finding.code or ended)


def _merged(said: Finding, found: Finding) -> Finding:
    known = {one.code for one in found.actions}
    actions = [*found.actions, *(one for one in said.actions if one.code not in known)]
    params = {**said.params, **found.params} if said.code == found.code else said.params
    return replace(said, params=params, where=found.where or said.where, since=found.since or said.since,
                   evidence=[*said.evidence, *found.evidence], actions=actions)  # fmt: skip


def _counts(facts: Facts, told: Told) -> bool:
    """Return whether the finding holds now. One that lasted to its attempt's end counts where the task failed with
    it."""
    quiet = told.finding.level is Level.INFO and told.finding.code not in DOUBTS
    if quiet or told.until is not None or told.attempt != facts.attempt:
        return False
    return not facts.final or facts.state == "failed"


def _summary(facts: Facts, wrong: Sequence[Told]) -> Words:
    if facts.reason and (facts.state == "failed" or not wrong):
        return Words(facts.reason.code, facts.reason.params)
    if wrong:
        return Words(wrong[0].finding.code, wrong[0].finding.params)
    match facts.state:
        case "running":
            return Words("WHY_RUNNING", {"parts": progress(facts)})
        case "starting":
            return Words("WHY_STARTING", _starting(facts))
        case "queued" if facts.begins_at and facts.begins_at > facts.moment:
            return Words("WHY_BACKING_OFF", {"number": facts.attempt + 1, "left": _left(facts, facts.begins_at)})
        case _:
            return Words(f"WHY_{facts.state.upper()}", {"for": span(facts.moment - facts.since)})


# --- what the task itself says ---


def _now(facts: Facts) -> Told | None:
    """Return the finding for the reason for which the task waits or ended; None without a reason."""
    reason = facts.reason
    if reason is None:
        if facts.state != "starting" or not facts.ranks:
            return None
        absent = Evidence("RANKS_WAITED_FOR", _starting(facts), where=_places(facts, "waiting"))
        return Told(Finding("WHY_STARTING", Level.INFO, _starting(facts), since=facts.since, evidence=[absent]),
                    facts.attempt)  # fmt: skip
    finding = Finding(
        reason.code,
        _level(facts, reason),
        reason.params,
        where=_where(facts, reason.params),
        since=facts.since,
        evidence=[
            *_said(reason.params),
            *_held(facts),
            *_in_line(facts),
            *_deadline(facts),
            *_next(facts),
            *_tried(facts),
        ],
        actions=_actions(facts, reason) if facts.state != "succeeded" else (),
    )
    if facts.state == "stopped":
        finding = replace(finding, actions=[take(Do.RESTART_FROM_CHECKPOINT)])
    return Told(finding, facts.attempt)


def _actions(facts: Facts, reason: Cause) -> list[Action]:
    """Return what would let the task start sooner first; then the actions for the reason."""
    line = facts.line or Line(0, 0)
    changes = [
        take(Do.CHANGE_FIELD, field=field, to=one.params.get(to))
        for one in line.sooner for field, to in [advice.CHANGES.get(one.code, (advice.SELECT, ""))]
    ]  # fmt: skip
    ahead = [take(Do.SEE_TASK, task=one.task) for one in line.ahead[:MOST_NAMED] if one.task]
    found = [*changes, *ahead, *advice.actions(reason, facts.nodes, ended=facts.final)]
    return list({(one.code, str(sorted(one.params.items()))): one for one in found}.values())


def _level(facts: Facts, reason: Cause) -> Level:
    if facts.state == "failed":
        return Level.FAIL
    if facts.final or reason.code in NORMAL or reason.patient:
        return Level.INFO
    ending = facts.attempts and facts.attempts[-1].number == facts.attempt and facts.attempts[-1].outcome
    lasts = facts.state in ("running", "starting") and ending and not ending.retry
    return Level.FAIL if lasts else Level.WARN


def _before(facts: Facts) -> list[Told]:
    """Return how the attempts before the newest ended."""
    return [
        Told(
            Finding(
                one.outcome.code,
                Level.INFO,
                one.outcome.params,
                where=_where(facts, one.outcome.params),
                since=one.began,
                evidence=[*_said(one.outcome.params), *_went_on(one, following)],
            ),
            one.number,
            one.ended or facts.moment,
        )
        for one, following in reversed(list(zip(facts.attempts, facts.attempts[1:], strict=False)))
        if one.outcome
    ][:MOST_TOLD]


# --- evidence ---


def _said(params: Mapping[str, Any]) -> list[Evidence]:
    """Return the engine's own output, where it has several lines."""
    words = str(params.get("evidence") or "").strip()
    return [Evidence("ENGINE_SAID", lines=words.splitlines())] if "\n" in words else []


def _held(facts: Facts) -> list[Evidence]:
    return [
        Evidence(
            "ENVIRONMENT_HELD_BY",
            {"environment": one.environment, "task": one.name or one.task, "for": span(facts.moment - one.since),
             **({"owner": one.owner} if one.owner else {})},
            where=Where(node=one.environment),
        )
        for one in facts.holders
    ]  # fmt: skip


def _in_line(facts: Facts) -> list[Evidence]:
    """Return the position in the queue, what must end first, when the task starts, and what would let it start
    sooner."""
    line = facts.line
    if line is None:
        return []
    named = [one for one in line.ahead if one.task][:MOST_NAMED]
    found = [Evidence("QUEUE_PLACE", {"number": line.number, "of": line.of})]
    found += [
        Evidence(
            "QUEUE_AHEAD", {"task": one.name or one.task, **({"left": _left(facts, one.until)} if one.until else {})}
        )
        for one in named
    ]
    if others := len(line.ahead) - len(named):
        found.append(Evidence("QUEUE_AHEAD_OTHERS", {"count": others}))
    if line.begins is None:
        found.append(Evidence("QUEUE_BEGINS_UNKNOWN"))
    else:
        moments = {"early": line.early, "late": line.late} if line.early != line.late else {}
        between = {name: _left(facts, moment) for name, moment in moments.items() if moment is not None}
        found.append(Evidence("QUEUE_BEGINS", {"left": _left(facts, line.begins), **between}))
    return [*found, *(Evidence(one.code, one.params) for one in line.sooner)]


def _deadline(facts: Facts) -> list[Evidence]:
    if facts.state == "starting":
        return [Evidence("RANKS_WAITED_FOR", _starting(facts), where=_places(facts, "waiting"))]
    if facts.state == "stopping":
        left = sum(rank.state != "exited" for rank in facts.ranks)
        return [Evidence("RANKS_ENDING", {"left": left, "all": facts.world_size})] if facts.ranks else []
    return []


def _next(facts: Facts) -> list[Evidence]:
    """Return from where a queued task resumes, and which attempt of how many that will be."""
    if facts.state != "queued" or not facts.attempts:
        return []
    number = {"number": facts.attempt + 1, "all": max(facts.max_attempts, facts.attempt + 1)}
    found = [Evidence("NEXT_ATTEMPT", number)]
    if facts.begins_at and facts.begins_at > facts.moment:
        found.append(Evidence("NEXT_BEGINS", {"left": _left(facts, facts.begins_at)}))
    return found + _steps(facts.next_step, facts.attempts[-1].last_step)


def _went_on(one: Attempt, following: Attempt) -> list[Evidence]:
    if following.resumed_from and following.from_step is None:
        return []  # another task's checkpoint, or one whose step nobody has said
    return _steps(following.from_step, one.last_step)


def _steps(saved: int | None, reached: int | None) -> list[Evidence]:
    if saved is None:
        return [Evidence("WENT_ON_WITHOUT", {"lost": f"{reached:,}"})] if reached else []
    lost = max((reached or saved) - saved, 0)
    return [Evidence("WENT_ON_FROM", {"step": f"{saved:,}", "lost": f"{lost:,}"})]


def _tried(facts: Facts) -> list[Evidence]:
    """Return the attempts of a task that failed after more than one; the task's own reason is not repeated."""
    ended = [one for one in facts.attempts if one.outcome]
    if facts.state != "failed" or len(ended) < 2:
        return []
    return [
        Evidence(
            "ATTEMPT_TRIED",
            {**one.outcome.params, "number": one.number, "for": span((one.ended or facts.moment) - one.began),
             **({} if _is_reason(facts, one.outcome) else {"outcome": one.outcome.code})},
        )
        for one in ended[-MOST_TOLD:] if one.outcome
    ]  # fmt: skip


def _is_reason(facts: Facts, outcome: Cause) -> bool:
    """Return whether an attempt ended with what the task gives as its reason."""
    reason = facts.reason or outcome
    known = {"code": reason.params.get("cause", reason.code) if reason.code in LOOPS else reason.code, **reason.params}
    return known["code"] == outcome.code and all(
        known.get(name) == outcome.params.get(name) for name in ("exception", "at", "place", "rank", "exitCode")
    )


# --- places and figures ---


def _where(facts: Facts, params: Mapping[str, Any]) -> list[Where]:
    rank, node_rank, node = params.get("rank"), params.get("nodeRank"), params.get("node") or params.get("environment")
    rank = rank if isinstance(rank, int) else None
    if not isinstance(node_rank, int):
        node_rank = facts.nodes.index(node) if node in facts.nodes else None
    node = node if isinstance(node, str) else _name(facts, node_rank)
    return [Where(rank, node_rank, node)] if rank is not None or node else []


def _places(facts: Facts, state: str) -> Where:
    """Return the first node with a rank in that state: evidence has one place."""
    absent = sorted({rank.node_rank for rank in facts.ranks if rank.state == state})
    return Where(node_rank=absent[0], node=_name(facts, absent[0])) if absent else Where()


def _name(facts: Facts, node_rank: int | None) -> str:
    return facts.nodes[node_rank] if node_rank is not None and 0 <= node_rank < len(facts.nodes) else ""


def _starting(facts: Facts) -> dict[str, Any]:
    there = sum(rank.state != "waiting" for rank in facts.ranks)
    absent = sorted({rank.node_rank for rank in facts.ranks if rank.state == "waiting"})
    if not facts.ranks:
        absent = list(range(len(facts.nodes)))
    names = [name for node_rank in absent if (name := _name(facts, node_rank))]
    named = ", ".join(names[:MOST_NAMED]) + (f", … (+{len(names) - MOST_NAMED})" if len(names) > MOST_NAMED else "")
    waits = {"nodes": named} if named else {}
    return {"number": facts.attempt, "there": there, "all": facts.world_size, "for": span(facts.moment - facts.since),
            "left": _left(facts, facts.ends_at), **waits}  # fmt: skip


def progress(facts: Facts) -> list[Words]:
    """Return the progress of running ranks: `step 1,204 of 5,000`, `3.1 steps/s`, `14 of 14 ranks`, `last step 0.2 s
    ago`."""
    pulses = facts.pulses.values()
    parts = []
    step = facts.step if facts.step is not None else max((p.step for p in pulses if p.step is not None), default=None)
    if step:
        known = {"total": f"{facts.total_steps:,}"} if facts.total_steps else {}
        parts.append(Words("WHY_STEP", {"step": f"{step:,}", **known}))
    else:
        parts.append(Words("WHY_NO_STEP", {"for": span(facts.moment - facts.since)}))
    if speeds := [1 / p.step_seconds for p in pulses if p.step_seconds]:
        parts.append(Words("WHY_SPEED", {"speed": f"{median(speeds):.3g}"}))
    running = sum(rank.state == "running" for rank in facts.ranks)
    parts.append(Words("WHY_RANKS", {"running": running, "all": facts.world_size}))
    if stepped := max((p.stepped_at for p in pulses if p.stepped_at), default=facts.stepped_at):
        parts.append(Words("WHY_LAST_STEP", {"for": span(facts.moment - stepped)}))
    if facts.attempt > 1:
        parts.append(Words("WHY_ATTEMPT", {"number": facts.attempt, "all": max(facts.max_attempts, facts.attempt)}))
    return parts


def _left(facts: Facts, moment: float | None) -> Words:
    return span((moment or facts.moment) - facts.moment)


def span(seconds: float) -> Words:
    """Return a duration as text; a negative one, from clocks that differ, counts as 0."""
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return Words("SPAN_SECONDS", {"seconds": f"{seconds:.1f}"})
    whole = int(seconds)
    if whole < 120:
        return Words("SPAN_SECONDS", {"seconds": whole})
    if whole < 2 * 3600:
        return Words("SPAN_MINUTES", {"minutes": whole // 60})
    if whole < 48 * 3600:
        return Words("SPAN_HOURS", {"hours": whole // 3600, "minutes": whole // 60 % 60})
    return Words("SPAN_DAYS", {"days": whole // 86400, "hours": whole // 3600 % 24})
