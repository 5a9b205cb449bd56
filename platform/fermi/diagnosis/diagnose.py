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
from fermi.diagnosis.actions import ActionCode, build_action, sort_actions
from fermi.diagnosis.root_cause import UNCAUGHT
from fermi.jobs.causes import RANK_CODES
from fermi.jobs.spec import Cause, Problem, RankProgress, RankStatus
from fermi.messages import NestedText

NORMAL_REASONS = frozenset(
    {"DATASET_PREPARING", "WAITING_FOR_ENVIRONMENTS", "WAITING_FOR_CAPACITY", "WAITING_FOR_TURN",
     "WAITING_FOR_RESERVATION", "WAITING_FOR_MAINTENANCE", "WAITING_FOR_MIN_RUN", "MAKING_ROOM", "LIMIT_GPUS",
     "LIMIT_TASKS", "LIMIT_USER_GPUS", "LIMIT_USER_TASKS", "GAVE_WAY", "PAUSED", "PREFLIGHT_RUNNING", "DRILL_RUNNING",
     "QUEUE_WAITING", "RESIZING", "COMPLETED", "COMPLETED_AND_KILLED", "COMPLETED_WITHOUT_STEP", "STOPPED_BY_USER",
     "STOPPED_AND_KILLED"}
)  # fmt: skip
"""Reasons to wait or to end with which nothing is wrong."""
LOOP_REASONS = frozenset({"CRASH_LOOP", "HANG_LOOP"})
"""Reasons whose cause is the end of the last attempt."""
DOUBTFUL_CODES = frozenset({"HANG_SUSPECTED"})
"""Codes that may turn out to be harmless, whatever their level; until then the task is not reported as healthy."""
MAX_PAST_ATTEMPTS = 5
"""Earlier attempts that are listed."""
MAX_NAMED = 8
MIN_LOST_SECONDS = 600.0
"""Training of that length is worth a checkpoint: from then on it is said that a restart would begin anew."""
RESUME_FIELD = "entrypoint.resume.args"
_ORDER = [Level.FAIL, Level.WARN, Level.INFO]


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt that started. `outcome`: with what is declared of it; None: its end is unknown. `from_step`: the step
    of the checkpoint that it resumed from, `first_step`, `last_step`: from where to where rank 0 came; None:
    unknown."""

    number: int
    began: float
    outcome: Cause | None = None
    ended: float | None = None
    resumed_from: str = ""
    from_step: int | None = None
    first_step: int | None = None
    last_step: int | None = None


@dataclass(frozen=True, slots=True)
class EnvironmentHolder:
    """An environment that the task wants and another task holds. `name`, `owner`: where the reader may know them."""

    environment: str
    task: str
    since: float
    name: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class BlockingTask:
    """A task that must end first. `name`, `task`: where the reader may know them. `until`: when it ends; None:
    unknown."""

    task: str = ""
    name: str = ""
    until: float | None = None


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """A task's position in the queue, and when it probably starts, between `early` and `late`; None: unknown. `late`
    alone None: or any time later. `sooner`: changes that would let it start now (`fermi.scheduler.what_if`)."""

    number: int
    total: int
    begins: float | None = None
    early: float | None = None
    late: float | None = None
    ahead: Sequence[BlockingTask] = ()
    sooner: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True)
class StoredFinding:
    """A finding with its attempt, and until when it held; None: it still holds, or did to the attempt's end."""

    finding: Finding
    attempt: int
    until: float | None = None


@dataclass(frozen=True, slots=True)
class RestartLoss:
    """What each restart would lose of a task whose script nothing tells to resume. `seconds`: of training; `step`: of a
    checkpoint that was found all the same; `rule`: the arguments by which the script seems to take one."""

    seconds: float
    step: int | None = None
    rule: str = ""


@dataclass(frozen=True, slots=True)
class TaskFacts:
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
    attempts: Sequence[PastAttempt] = ()
    next_step: int | None = None
    ranks: Sequence[RankStatus] = ()
    pulses: Mapping[int, RankProgress] = field(default_factory=dict)
    stored: Sequence[StoredFinding] = ()
    holders: Sequence[EnvironmentHolder] = ()
    line: QueuePosition | None = None
    step: int | None = None
    stepped_at: float | None = None
    total_steps: int | None = None
    restart_loss: RestartLoss | None = None

    @property
    def final(self) -> bool:
        return self.state in ("succeeded", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line (`summary`), and the findings."""

    healthy: bool
    summary: NestedText
    findings: tuple[StoredFinding, ...]


def diagnose(facts: TaskFacts) -> Diagnosis:
    """Return the diagnosis of a task."""
    own = [_build_current(facts), _find_new_beginning(facts), _find_restart_loss(facts), *_list_past(facts)]
    told = [
        replace(one, finding=replace(one.finding, actions=sort_actions(one.finding.actions)))
        for one in _merge_findings([one for one in own if one], facts.stored)
    ]
    told.sort(key=lambda one: (one.until is not None, _ORDER.index(one.finding.level), -(one.finding.since or 0.0)))
    wrong = [one for one in told if _is_current(facts, one)]
    healthy = not wrong and facts.state != "failed"
    return Diagnosis(healthy, _summarize(facts, wrong), tuple(told))


def _merge_findings(own: Sequence[StoredFinding], stored: Sequence[StoredFinding]) -> list[StoredFinding]:
    """Return the task's own findings and the stored ones, each once: a hang is both."""
    told, twice = [], set[int]()
    for one in own:
        same = next((found for found in stored if _is_same(one, found)), None)
        twice |= {id(same)} if same else set()
        told.append(replace(one, finding=_merge_finding(one.finding, same.finding)) if same else one)
    return [*(one for one in stored if id(one) not in twice), *told]


def _is_same(own: StoredFinding, other: StoredFinding) -> bool:
    """Return whether two findings are the same. An exception without a known cause says no more than the end that it
    caused; and what was found of the attempt at which a loop was detected is the cause that the loop names."""
    if own.finding.code in LOOP_REASONS and own.attempt == other.attempt and other.until is None:
        params = own.finding.params
        return other.finding.code in (UNCAUGHT, params.get("why"), params.get("cause"))
    ranks = [where.rank for where in own.finding.where], [where.rank for where in other.finding.where]
    ended = own.finding.code in RANK_CODES and other.finding.code == UNCAUGHT and ranks[0] == ranks[1]
    return own.attempt == other.attempt and (own.finding.code == other.finding.code or ended)


def _merge_finding(own: Finding, other: Finding) -> Finding:
    known = {one.code for one in other.actions}
    actions = [*other.actions, *(one for one in own.actions if one.code not in known)]
    params = {**own.params, **other.params} if own.code == other.code else own.params
    return replace(own, params=params, where=other.where or own.where, since=other.since or own.since,
                   evidence=[*own.evidence, *other.evidence], actions=actions)  # fmt: skip


def _is_current(facts: TaskFacts, stored: StoredFinding) -> bool:
    """Return whether the finding holds now. One that lasted to its attempt's end counts where the task failed with
    it."""
    quiet = stored.finding.level is Level.INFO and stored.finding.code not in DOUBTFUL_CODES
    if quiet or stored.until is not None or stored.attempt != facts.attempt:
        return False
    return not facts.final or facts.state == "failed"


def _summarize(facts: TaskFacts, problems: Sequence[StoredFinding]) -> NestedText:
    if facts.reason and (facts.state == "failed" or not problems):
        return NestedText(facts.reason.code, facts.reason.params)
    if problems:
        return NestedText(problems[0].finding.code, problems[0].finding.params)
    match facts.state:
        case "running":
            return NestedText("WHY_RUNNING", {"parts": describe_progress(facts)})
        case "starting":
            return NestedText("WHY_STARTING", _describe_starting(facts))
        case "queued" if facts.begins_at and facts.begins_at > facts.moment:
            return NestedText(
                "WHY_BACKING_OFF", {"number": facts.attempt + 1, "left": _describe_remaining(facts, facts.begins_at)}
            )
        case _:
            return NestedText(f"WHY_{facts.state.upper()}", {"for": describe_duration(facts.moment - facts.since)})


# --- what the task itself says ---


def _build_current(facts: TaskFacts) -> StoredFinding | None:
    """Return the finding for the reason for which the task waits or ended; None without a reason."""
    reason = facts.reason
    if reason is None:
        if facts.state != "starting" or not facts.ranks:
            return None
        absent = Evidence("RANKS_WAITED_FOR", _describe_starting(facts), where=_locate_ranks(facts, "waiting"))
        return StoredFinding(Finding("WHY_STARTING", Level.INFO, _describe_starting(facts), since=facts.since,
                    evidence=[absent]), facts.attempt)  # fmt: skip
    finding = Finding(
        reason.code,
        _choose_level(facts, reason),
        reason.params,
        where=_locate(facts, reason.params),
        since=facts.since,
        evidence=[
            *_quote_engine(reason.params),
            *_list_holders(facts),
            *_describe_queue(facts),
            *_describe_waited_ranks(facts),
            *_describe_next_attempt(facts),
            *_list_tried(facts),
        ],
        actions=_list_actions(facts, reason) if facts.state != "succeeded" else (),
    )
    if facts.state == "stopped":
        finding = replace(finding, actions=[build_action(ActionCode.RESTART_FROM_CHECKPOINT)])
    return StoredFinding(finding, facts.attempt)


def _list_actions(facts: TaskFacts, reason: Cause) -> list[Action]:
    """Return what would let the task start sooner first; then the actions for the reason."""
    line = facts.line or QueuePosition(0, 0)
    changes = [
        build_action(ActionCode.CHANGE_FIELD, field=field, to=one.params.get(to))
        for one in line.sooner for field, to in [advice.FIELDS_TO_CHANGE.get(one.code, (advice.SELECT_FIELD, ""))]
    ]  # fmt: skip
    ahead = [build_action(ActionCode.SEE_TASK, task=one.task) for one in line.ahead[:MAX_NAMED] if one.task]
    found = [*changes, *ahead, *advice.list_actions(reason, facts.nodes, ended=facts.final)]
    return list({(one.code, str(sorted(one.params.items()))): one for one in found}.values())


def _choose_level(facts: TaskFacts, reason: Cause) -> Level:
    if facts.state == "failed":
        return Level.FAIL
    if facts.final or reason.code in NORMAL_REASONS or reason.patient:
        return Level.INFO
    ending = facts.attempts and facts.attempts[-1].number == facts.attempt and facts.attempts[-1].outcome
    lasts = facts.state in ("running", "starting") and ending and not ending.retry
    return Level.FAIL if lasts else Level.WARN


def _list_past(facts: TaskFacts) -> list[StoredFinding]:
    """Return how the attempts before the newest ended."""
    return [
        StoredFinding(
            Finding(
                one.outcome.code,
                Level.INFO,
                one.outcome.params,
                where=_locate(facts, one.outcome.params),
                since=one.began,
                evidence=[*_quote_engine(one.outcome.params), *_describe_resume(one, following)],
            ),
            one.number,
            one.ended or facts.moment,
        )
        for one, following in reversed(list(zip(facts.attempts, facts.attempts[1:], strict=False)))
        if one.outcome
    ][:MAX_PAST_ATTEMPTS]


# --- what restarts cost ---


def _find_new_beginning(facts: TaskFacts) -> StoredFinding | None:
    """Return what was lost where the newest attempt began where the task did, although the one before it had come
    further; None where it resumed, or nothing is known of its steps."""
    if len(facts.attempts) < 2:
        return None
    first, before, newest = facts.attempts[0], facts.attempts[-2], facts.attempts[-1]
    if newest.number != facts.attempt or None in (first.first_step, before.last_step, newest.first_step):
        return None
    begun, reached = newest.first_step or 0, before.last_step or 0
    if begun > (first.first_step or 0) or reached <= begun:
        return None
    lost = reached - begun if first.resumed_from else reached
    params: dict[str, Any] = {"number": newest.number, "before": before.number, "lost": f"{lost:,}"}
    params["duration"] = describe_duration((before.ended or newest.began) - before.began)
    params |= {} if newest.from_step is None else {"step": f"{newest.from_step:,}"}
    level = Level.INFO if newest.from_step is None else Level.WARN
    actions = [build_action(ActionCode.CHANGE_FIELD, field=RESUME_FIELD)] if "step" in params else []
    return StoredFinding(Finding("BEGAN_ANEW", level, params, since=newest.began, actions=actions), newest.number)


def _find_restart_loss(facts: TaskFacts) -> StoredFinding | None:
    """Return what each restart would lose, and how the script could be told to resume; None where it is little."""
    loss = facts.restart_loss
    if loss is None or loss.seconds < MIN_LOST_SECONDS:
        return None
    params: dict[str, Any] = {"duration": describe_duration(loss.seconds)}
    params |= {} if loss.step is None else {"step": f"{loss.step:,}"}
    actions = [build_action(ActionCode.CHANGE_FIELD, field=RESUME_FIELD, to=loss.rule)]
    if loss.step is None:
        actions.append(build_action(ActionCode.EDIT_SCRIPT))
    finding = Finding("RESTART_BEGINS_ANEW", Level.INFO, params, since=facts.since, actions=actions)
    return StoredFinding(finding, facts.attempt)


# --- evidence ---


def _quote_engine(params: Mapping[str, Any]) -> list[Evidence]:
    """Return the engine's own output, where it has several lines."""
    words = str(params.get("evidence") or "").strip()
    return [Evidence("ENGINE_SAID", lines=words.splitlines())] if "\n" in words else []


def _list_holders(facts: TaskFacts) -> list[Evidence]:
    return [
        Evidence(
            "ENVIRONMENT_HELD_BY",
            {"environment": one.environment, "task": one.name or one.task, "for": describe_duration(facts.moment -
            one.since),
             **({"owner": one.owner} if one.owner else {})},
            where=Where(node=one.environment),
        )
        for one in facts.holders
    ]  # fmt: skip


def _describe_queue(facts: TaskFacts) -> list[Evidence]:
    """Return the position in the queue, what must end first, when the task starts, and what would let it start
    sooner."""
    line = facts.line
    if line is None:
        return []
    named = [one for one in line.ahead if one.task][:MAX_NAMED]
    found = [Evidence("QUEUE_PLACE", {"number": line.number, "of": line.total})]
    found += [
        Evidence(
            "QUEUE_AHEAD",
            {"task": one.name or one.task, **({"left": _describe_remaining(facts, one.until)} if one.until else {})},
        )
        for one in named
    ]
    if others := len(line.ahead) - len(named):
        found.append(Evidence("QUEUE_AHEAD_OTHERS", {"count": others}))
    if line.begins is None:
        found.append(Evidence("QUEUE_BEGINS_UNKNOWN"))
    else:
        moments = {"early": line.early, "late": line.late} if line.early != line.late else {}
        between = {name: _describe_remaining(facts, moment) for name, moment in moments.items() if moment is not None}
        found.append(Evidence("QUEUE_BEGINS", {"left": _describe_remaining(facts, line.begins), **between}))
    return [*found, *(Evidence(one.code, one.params) for one in line.sooner)]


def _describe_waited_ranks(facts: TaskFacts) -> list[Evidence]:
    if facts.state == "starting":
        return [Evidence("RANKS_WAITED_FOR", _describe_starting(facts), where=_locate_ranks(facts, "waiting"))]
    if facts.state == "stopping":
        left = sum(rank.state != "exited" for rank in facts.ranks)
        return [Evidence("RANKS_ENDING", {"left": left, "all": facts.world_size})] if facts.ranks else []
    return []


def _describe_next_attempt(facts: TaskFacts) -> list[Evidence]:
    """Return from where a queued task resumes, and which attempt of how many that will be."""
    if facts.state != "queued" or not facts.attempts:
        return []
    number = {"number": facts.attempt + 1, "all": max(facts.max_attempts, facts.attempt + 1)}
    found = [Evidence("NEXT_ATTEMPT", number)]
    if facts.begins_at and facts.begins_at > facts.moment:
        found.append(Evidence("NEXT_BEGINS", {"left": _describe_remaining(facts, facts.begins_at)}))
    return found + _describe_steps(facts.next_step, facts.attempts[-1].last_step)


def _describe_resume(attempt: PastAttempt, next_attempt: PastAttempt) -> list[Evidence]:
    if next_attempt.resumed_from and next_attempt.from_step is None:
        return []  # another task's checkpoint, or one whose step nobody has said
    return _describe_steps(next_attempt.from_step, attempt.last_step)


def _describe_steps(saved: int | None, reached: int | None) -> list[Evidence]:
    if saved is None:
        return [Evidence("WENT_ON_WITHOUT", {"lost": f"{reached:,}"})] if reached else []
    lost = max((reached or saved) - saved, 0)
    return [Evidence("WENT_ON_FROM", {"step": f"{saved:,}", "lost": f"{lost:,}"})]


def _list_tried(facts: TaskFacts) -> list[Evidence]:
    """Return the attempts of a task that failed after more than one; the task's own reason is not repeated."""
    ended = [one for one in facts.attempts if one.outcome]
    if facts.state != "failed" or len(ended) < 2:
        return []
    return [
        Evidence(
            "ATTEMPT_TRIED",
            {**one.outcome.params, "number": one.number, "for": describe_duration((one.ended or facts.moment) -
            one.began),
             **({} if _is_reason(facts, one.outcome) else {"outcome": one.outcome.code})},
        )
        for one in ended[-MAX_PAST_ATTEMPTS:] if one.outcome
    ]  # fmt: skip


def _is_reason(facts: TaskFacts, outcome: Cause) -> bool:
    """Return whether an attempt ended with what the task gives as its reason."""
    reason = facts.reason or outcome
    known = {
        "code": reason.params.get("cause", reason.code) if reason.code in LOOP_REASONS else reason.code,
        **reason.params,
    }
    return known["code"] == outcome.code and all(
        known.get(name) == outcome.params.get(name) for name in ("exception", "at", "place", "rank", "exitCode")
    )


# --- places and figures ---


def _locate(facts: TaskFacts, params: Mapping[str, Any]) -> list[Where]:
    rank, node_rank, node = params.get("rank"), params.get("nodeRank"), params.get("node") or params.get("environment")
    rank = rank if isinstance(rank, int) else None
    if not isinstance(node_rank, int):
        node_rank = facts.nodes.index(node) if node in facts.nodes else None
    node = node if isinstance(node, str) else _get_node_name(facts, node_rank)
    return [Where(rank, node_rank, node)] if rank is not None or node else []


def _locate_ranks(facts: TaskFacts, state: str) -> Where:
    """Return the first node with a rank in that state: evidence has one place."""
    absent = sorted({rank.node_rank for rank in facts.ranks if rank.state == state})
    return Where(node_rank=absent[0], node=_get_node_name(facts, absent[0])) if absent else Where()


def _get_node_name(facts: TaskFacts, node_rank: int | None) -> str:
    return facts.nodes[node_rank] if node_rank is not None and 0 <= node_rank < len(facts.nodes) else ""


def _describe_starting(facts: TaskFacts) -> dict[str, Any]:
    there = sum(rank.state != "waiting" for rank in facts.ranks)
    absent = sorted({rank.node_rank for rank in facts.ranks if rank.state == "waiting"})
    if not facts.ranks:
        absent = list(range(len(facts.nodes)))
    names = [name for node_rank in absent if (name := _get_node_name(facts, node_rank))]
    named = ", ".join(names[:MAX_NAMED]) + (f", … (+{len(names) - MAX_NAMED})" if len(names) > MAX_NAMED else "")
    waits = {"nodes": named} if named else {}
    return {"number": facts.attempt, "there": there, "all": facts.world_size, "for": describe_duration(facts.moment -
            facts.since), "left": _describe_remaining(facts, facts.ends_at), **waits}  # fmt: skip


def describe_progress(facts: TaskFacts) -> list[NestedText]:
    """Return the progress of running ranks: `step 1,204 of 5,000`, `3.1 steps/s`, `14 of 14 ranks`, `last step 0.2 s
    ago`."""
    pulses = facts.pulses.values()
    parts = []
    step = facts.step if facts.step is not None else max((p.step for p in pulses if p.step is not None), default=None)
    if step:
        known = {"total": f"{facts.total_steps:,}"} if facts.total_steps else {}
        parts.append(NestedText("WHY_STEP", {"step": f"{step:,}", **known}))
    else:
        parts.append(NestedText("WHY_NO_STEP", {"for": describe_duration(facts.moment - facts.since)}))
    if speeds := [1 / p.step_seconds for p in pulses if p.step_seconds]:
        parts.append(NestedText("WHY_SPEED", {"speed": f"{median(speeds):.3g}"}))
    running = sum(rank.state == "running" for rank in facts.ranks)
    parts.append(NestedText("WHY_RANKS", {"running": running, "all": facts.world_size}))
    if stepped := max((p.stepped_at for p in pulses if p.stepped_at), default=facts.stepped_at):
        parts.append(NestedText("WHY_LAST_STEP", {"for": describe_duration(facts.moment - stepped)}))
    if facts.attempt > 1:
        parts.append(
            NestedText("WHY_ATTEMPT", {"number": facts.attempt, "all": max(facts.max_attempts, facts.attempt)})
        )
    return parts


def _describe_remaining(facts: TaskFacts, moment: float | None) -> NestedText:
    return describe_duration((moment or facts.moment) - facts.moment)


def describe_duration(seconds: float) -> NestedText:
    """Return a duration as text; a negative one, from clocks that differ, counts as 0."""
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return NestedText("SPAN_SECONDS", {"seconds": f"{seconds:.1f}"})
    whole = int(seconds)
    if whole < 120:
        return NestedText("SPAN_SECONDS", {"seconds": whole})
    if whole < 2 * 3600:
        return NestedText("SPAN_MINUTES", {"minutes": whole // 60})
    if whole < 48 * 3600:
        return NestedText("SPAN_HOURS", {"hours": whole // 3600, "minutes": whole // 60 % 60})
    return NestedText("SPAN_DAYS", {"days": whole // 86400, "hours": whole // 3600 % 24})
