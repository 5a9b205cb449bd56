"""Explains why an attempt's ranks failed, from what they and their logs report, and whether another attempt would fail
in the same way."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from functools import partial
from itertools import takewhile
from typing import Any

from django.db.models import Max

from apps.common.clock import now
from apps.training.core import code, findings, outcomes, transitions
from apps.training.core.engine_access import build_handle, get_backend
from apps.training.models import Attempt, Finding, Task
from apps.training.states.reasons import TaskReason
from fermi import diagnosis
from fermi.diagnosis import Level, hangs, root_cause, rules, stragglers, tracebacks, world_sizes
from fermi.diagnosis.facts import JobFacts
from fermi.diagnosis.root_cause import RankFailure
from fermi.engines import failure_cause
from fermi.jobs.causes import RANK_CODES, RANK_FAILED, RANK_KILLED
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import JobSpec, RankStatus
from fermi.runner.record_frames import read_tail

log = logging.getLogger(__name__)

MAX_STEPLESS_DURATION = timedelta(minutes=5)
"""An attempt without a known step counts as one that had not begun training if it lasted no longer."""
EXPLANATION_PARAMS = ("exception", "at", "why", "about")
EXPLAINED_OUTCOMES = frozenset({RANK_FAILED.code, RANK_KILLED.code})
"""Outcomes of which ranks and their logs tell more."""
CRASH_SIGNALS = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS", "SIGXFSZ", "SIGXCPU"})
"""Signals that a program causes itself; any other signal was sent by another process."""


def explain_outcome(
    task: Task, attempt: Attempt, outcome: str, params: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the outcome and its `params` with what is known now about why the attempt failed. Never raises: an end
    that cannot be explained is returned as it is."""
    if outcome not in EXPLAINED_OUTCOMES or not isinstance(params.get("rank"), int):
        return outcome, dict(params)
    try:
        ranks, names = _load_ranks(attempt), _list_node_names(task)
        known = _explain_failure(task, attempt, params["rank"], ranks, names)
        if known and (wrong := _judge_rank_numbers(ranks, names)):
            known = replace(known, why=wrong.code, about=wrong.params, rule=None, follows=False)
    except Exception:
        log.exception("the end of %s cannot be explained", attempt.name)
        return outcome, dict(params)
    if known is None:
        return outcome, dict(params)
    if known.follows and (
        left := failure_cause.find_early_exit(ranks, known.rank_status.rank, lambda node_rank: names[node_rank])
    ):
        _record_finding(task, attempt, known, Level.INFO)  # a victim's output explains nothing; it is shown below
        return left.code, dict(left.params)
    _record_finding(task, attempt, known)
    kept = {name: value for name, value in params.items() if name not in EXPLANATION_PARAMS}
    if (
        known.rank_status.rank != params["rank"]
        and known.rank_status.exit_code is not None
        and known.rank_status.exit_code > 0
    ):
        kept |= {"rank": known.rank_status.rank, "nodeRank": known.rank_status.node_rank, "node": known.node,
                 "exitCode": known.rank_status.exit_code}  # fmt: skip
    return outcome, {**kept, **known.params()}


def update_outcome(task: Task, attempt: Attempt) -> bool:
    """Return True if the complete output explains more than was known when the outcome was stored: it is stored now,
    and what follows has to be decided again."""
    outcome, params = explain_outcome(task, attempt, attempt.outcome, attempt.outcome_params)
    if (outcome, params) == (attempt.outcome, attempt.outcome_params):
        return False
    with transitions.lock_task(task):
        same = Attempt.objects.filter(pk=attempt.pk, outcome=attempt.outcome)
        return bool(same.update(**outcomes.build_outcome_columns(outcome, params)))


def detect_crash_loop(task: Task, attempt: Attempt) -> dict[str, Any]:
    """Return `times`, and `step` if there was one, if the attempt ended like the one before it and another one would,
    too; otherwise an empty dict."""
    if attempt.outcome not in RANK_CODES or task.spec.get("on_crash_loop", "stop") == "restart":
        return {}
    earlier = sorted((one for one in task.attempts.all() if one.number < attempt.number), key=lambda one: -one.number)
    if not earlier or earlier[0].outcome != attempt.outcome:
        return {}
    reached = read_last_steps(task, attempt)
    saved = frozenset(task.checkpoints.values_list("attempt", flat=True))
    return count_equal_failures(attempt, earlier, reached, saved)


def count_equal_failures(
    attempt: Attempt, newest_first: Iterable[Attempt], steps: Mapping[int, int], saved: frozenset[int] = frozenset()
) -> dict[str, Any]:
    """Return `times` and `step` if the newest attempts ended in the same way; otherwise an empty dict. Pure. `steps`:
    how far attempts came; `saved`: attempts that saved a checkpoint."""
    sign = _build_signature(attempt, steps, saved)
    if sign is None:
        return {}
    alike = sum(1 for _ in takewhile(lambda one: _build_signature(one, steps, saved) == sign, newest_first))
    step = steps.get(attempt.number)
    return {"times": alike + 1, **({"step": step} if step is not None else {})} if alike else {}


def _build_signature(attempt: Attempt, steps: Mapping[int, int], saved: frozenset[int]) -> tuple[Any, ...] | None:
    """Return what identifies the failure; None if it says nothing about the next attempt, because it came from
    elsewhere or it is not known how far the attempt had come."""
    said = attempt.outcome_params
    if attempt.outcome not in RANK_CODES or root_cause.is_external(said):
        return None
    exception, signal = said.get("exception"), said.get("signal")
    if (
        attempt.outcome == RANK_KILLED.code
        and signal not in CRASH_SIGNALS
        and said.get("why") != root_cause.LIMIT_REACHED
    ):
        return None
    step = steps.get(attempt.number)
    if step is not None:
        what = (
            (_get_exception_type(exception), said.get("at")) if exception else (said.get("rank"), said.get("exitCode"))
        )
        return (attempt.outcome, signal, *what, step)
    if not exception or attempt.number in saved or _get_duration(attempt) > MAX_STEPLESS_DURATION:
        return None
    return (attempt.outcome, signal, exception, said.get("at"), attempt.resume_from)


def _get_exception_type(exception: str) -> str:
    """Return the exception's type, without the message whose numbers differ each time."""
    return exception.partition(":")[0]


def _get_duration(attempt: Attempt) -> timedelta:
    began = attempt.running_at or attempt.created_at
    return (attempt.ended_at or now()) - began


def read_last_steps(task: Task, attempt: Attempt) -> dict[int, int]:
    """Return the last step of rank 0 in each attempt; empty unless a rank failed."""
    if attempt.outcome not in RANK_CODES:
        return {}
    found = task.metrics.filter(rank=0).values("attempt").annotate(last=Max("step"))
    return dict(found.values_list("attempt", "last"))


def _load_ranks(attempt: Attempt) -> list[RankStatus]:
    """Return the ranks as they were last observed."""
    known = {one.name for one in fields(RankStatus)}
    return [
        RankStatus(**{name: value for name, value in entry.items() if name in known})
        for entry in attempt.seen.get("ranks", ())
    ]


def _list_node_names(task: Task) -> list[str]:
    """Return the nodes' names by node rank."""
    return [name for _, name in sorted(task.nodes.values_list("node_rank", "name"))]


def _explain_failure(
    task: Task, attempt: Attempt, blamed: int, ranks: Sequence[RankStatus], names: Sequence[str]
) -> RankFailure | None:
    backend, handle = get_backend(task.cluster), build_handle(task, attempt.number)

    def tail(rank: int) -> bytes:
        try:
            return read_tail(lambda size: backend.logs(handle, rank, -size, size).data, tracebacks.MAX_BYTES)
        except BackendError:
            return b""

    job = JobSpec.from_json(task.spec)
    addresses = {
        name: node.name for node in job.nodes for name in (node.address, node.hostname, node.ip, node.host) if name
    }
    facts = JobFacts(job, partial(code.describe_sent_code, job))
    return root_cause.explain_failure(
        ranks, blamed, names, tail, findings.load_rules(task.project_id), addresses, facts
    )


def record_left_running(task: Task, attempt: Attempt) -> None:
    """Record findings about programs that the ranks of a successful attempt left running."""
    if found := root_cause.find_left_running(_load_ranks(attempt), _list_node_names(task)):
        findings.record_findings(task.pk, attempt.number, found)


def _judge_rank_numbers(ranks: Sequence[RankStatus], names: Sequence[str]) -> diagnosis.Finding | None:
    """Return the finding for ranks that joined under other rank numbers; such ranks fail in many ways, none of which
    says why."""
    places = {rank.rank: stragglers.RankLocation(rank.node_rank, names[rank.node_rank]) for rank in ranks}
    return world_sizes.find_local_rank_as_rank({rank.rank: rank.joined_as for rank in ranks}, places)


def _record_finding(task: Task, attempt: Attempt, failure: RankFailure, level: Level | None = None) -> None:
    finding = failure.finding()
    if finding is None:
        return
    finding = replace(finding, level=level or finding.level)
    codes = [
        root_cause.UNCAUGHT,
        root_cause.LIMIT_REACHED,
        root_cause.HOST_FULL,
        rules.PROJECT_RULE,
        *(r.code for r in rules.load_rules()),
    ]
    with transitions.lock_task(task):
        Finding.objects.filter(task=task, attempt=attempt.number, code__in=codes).exclude(code=finding.code).delete()
        findings.record_findings(task.pk, attempt.number, [finding])


def find_loop_reason(task: Task, attempt: Attempt) -> tuple[str, dict[str, Any]] | None:
    """Return the reason of a task that ends because its attempts all fail in the same way; None if they do not."""
    known = {"cause": attempt.outcome, **attempt.outcome_params}
    if hung := detect_hang_loop(task, attempt):
        return TaskReason.HANG_LOOP, {**known, **hung}
    found = detect_crash_loop(task, attempt)
    return (TaskReason.CRASH_LOOP, {**known, **found}) if found else None


def detect_hang_loop(task: Task, attempt: Attempt) -> dict[str, Any]:
    """Return `times` if the attempt ended by the same hang verdict on the same line of the script as the one before it;
    otherwise an empty dict. The script is to blame then, and a third attempt would find out nothing new."""
    line = _get_hang_location(attempt)
    if line is None or task.spec.get("on_crash_loop", "stop") == "restart":
        return {}
    earlier = sorted((one for one in task.attempts.all() if one.number < attempt.number), key=lambda one: -one.number)
    alike = sum(1 for _ in takewhile(lambda one: _get_hang_location(one) == line, earlier))
    return {"times": alike + 1} if alike else {}


def _get_hang_location(attempt: Attempt) -> tuple[str, str] | None:
    """Return the hang verdict and the script's line; None if it did not hang, or at no line of the script, as where a
    connection is dead."""
    place = attempt.outcome_params.get("place")
    return (attempt.outcome, place) if attempt.outcome in hangs.ENDING_CODES and isinstance(place, str) else None
