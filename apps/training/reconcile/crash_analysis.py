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
from apps.training.core import code, diagnosis_rules, findings, outcomes, transitions
from apps.training.core.engine_access import backend_for, handle_for
from apps.training.models import Attempt, Finding, Task
from apps.training.states.reasons import Reason
from fermi import diagnosis
from fermi.diagnosis import Level, hangs, root_cause, rules, stragglers, tracebacks, world_sizes
from fermi.diagnosis.facts import Facts
from fermi.diagnosis.root_cause import Told
from fermi.engines import failure_cause
from fermi.jobs.causes import BY_RANKS, RANK_FAILED, RANK_KILLED
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import JobSpec, RankSeen

log = logging.getLogger(__name__)

WITHOUT_A_STEP = timedelta(minutes=5)
"""An attempt without a known step counts as one that had not begun training if it lasted no longer."""
SAYS = ("exception", "at", "why", "about")
EXPLAINED = frozenset({RANK_FAILED.code, RANK_KILLED.code})
"""Outcomes of which ranks and their logs tell more."""
CRASHES = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS", "SIGXFSZ", "SIGXCPU"})
"""Signals that a program causes itself; any other signal was sent by another process."""


def told(task: Task, attempt: Attempt, outcome: str, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the outcome and its `params` with what is known now about why the attempt failed. Never raises: an end
    that cannot be explained is returned as it is."""
    if outcome not in EXPLAINED or not isinstance(params.get("rank"), int):
        return outcome, dict(params)
    try:
        ranks, names = _ranks(attempt), _names(task)
        known = _explained(task, attempt, params["rank"], ranks, names)
        if known and (wrong := _wrong_numbers(ranks, names)):
            known = replace(known, why=wrong.code, about=wrong.params, rule=None, follows=False)
    except Exception:
        log.exception("the end of %s cannot be explained", attempt.name)
        return outcome, dict(params)
    if known is None:
        return outcome, dict(params)
    if known.follows and (left := failure_cause.left_early(ranks, known.seen.rank, lambda node_rank: names[node_rank])):
        _note(task, attempt, known, Level.INFO)  # a victim's output explains nothing; it is shown below
        return left.code, dict(left.params)
    _note(task, attempt, known)
    kept = {name: value for name, value in params.items() if name not in SAYS}
    if known.seen.rank != params["rank"] and known.seen.exit_code is not None and known.seen.exit_code > 0:
        kept |= {"rank": known.seen.rank, "nodeRank": known.seen.node_rank, "node": known.node,
                 "exitCode": known.seen.exit_code}  # fmt: skip
    return outcome, {**kept, **known.params()}


def corrected(task: Task, attempt: Attempt) -> bool:
    """Return True if the complete output explains more than was known when the outcome was stored: it is stored now,
    and what follows has to be decided again."""
    outcome, params = told(task, attempt, attempt.outcome, attempt.outcome_params)
    if (outcome, params) == (attempt.outcome, attempt.outcome_params):
        return False
    with transitions.owned(task):
        same = Attempt.objects.filter(pk=attempt.pk, outcome=attempt.outcome)
        return bool(same.update(**outcomes.stored(outcome, params)))


def loop(task: Task, attempt: Attempt) -> dict[str, Any]:
    """Return `times`, and `step` if there was one, if the attempt ended like the one before it and another one would,
    too; otherwise an empty dict."""
    if attempt.outcome not in BY_RANKS or task.spec.get("on_crash_loop", "stop") == "restart":
        return {}
    earlier = sorted((one for one in task.attempts.all() if one.number < attempt.number), key=lambda one: -one.number)
    if not earlier or earlier[0].outcome != attempt.outcome:
        return {}
    reached = last_steps(task, attempt)
    saved = frozenset(task.checkpoints.values_list("attempt", flat=True))
    return same_again(attempt, earlier, reached, saved)


def same_again(
    attempt: Attempt, newest_first: Iterable[Attempt], steps: Mapping[int, int], saved: frozenset[int] = frozenset()
) -> dict[str, Any]:
    """Return `times` and `step` if the newest attempts ended in the same way; otherwise an empty dict. Pure. `steps`:
    how far attempts came; `saved`: attempts that saved a checkpoint."""
    sign = _sign(attempt, steps, saved)
    if sign is None:
        return {}
    alike = sum(1 for _ in takewhile(lambda one: _sign(one, steps, saved) == sign, newest_first))
    step = steps.get(attempt.number)
    return {"times": alike + 1, **({"step": step} if step is not None else {})} if alike else {}


def _sign(attempt: Attempt, steps: Mapping[int, int], saved: frozenset[int]) -> tuple[Any, ...] | None:
    """Return what identifies the failure; None if it says nothing about the next attempt, because it came from
    elsewhere or it is not known how far the attempt had come."""
    said = attempt.outcome_params
    if attempt.outcome not in BY_RANKS or root_cause.elsewhere(said):
        return None
    exception, signal = said.get("exception"), said.get("signal")
    if attempt.outcome == RANK_KILLED.code and signal not in CRASHES and said.get("why") != root_cause.LIMIT_REACHED:
        return None
    step = steps.get(attempt.number)
    if step is not None:
        what = (_kind(exception), said.get("at")) if exception else (said.get("rank"), said.get("exitCode"))
        return (attempt.outcome, signal, *what, step)
    if not exception or attempt.number in saved or _lasted(attempt) > WITHOUT_A_STEP:
        return None
    return (attempt.outcome, signal, exception, said.get("at"), attempt.resume_from)


def _kind(exception: str) -> str:
    """Return the exception's type, without the message whose numbers differ each time."""
    return exception.partition(":")[0]


def _lasted(attempt: Attempt) -> timedelta:
    began = attempt.running_at or attempt.created_at
    return (attempt.ended_at or now()) - began


def last_steps(task: Task, attempt: Attempt) -> dict[int, int]:
    """Return the last step of rank 0 in each attempt; empty unless a rank failed."""
    if attempt.outcome not in BY_RANKS:
        return {}
    found = task.metrics.filter(rank=0).values("attempt").annotate(last=Max("step"))
    return dict(found.values_list("attempt", "last"))


def _ranks(attempt: Attempt) -> list[RankSeen]:
    """Return the ranks as they were last observed."""
    known = {one.name for one in fields(RankSeen)}
    return [
        RankSeen(**{name: value for name, value in entry.items() if name in known})
        for entry in attempt.seen.get("ranks", ())
    ]


def _names(task: Task) -> list[str]:
    """Return the nodes' names by node rank."""
    return [name for _, name in sorted(task.nodes.values_list("node_rank", "name"))]


def _explained(
    task: Task, attempt: Attempt, blamed: int, ranks: Sequence[RankSeen], names: Sequence[str]
) -> Told | None:
    backend, handle = backend_for(task.cluster), handle_for(task, attempt.number)

    def tail(rank: int) -> bytes:
        try:
            return backend.logs(handle, rank, -tracebacks.MOST_BYTES, tracebacks.MOST_BYTES).data
        except BackendError:
            return b""

    job = JobSpec.from_json(task.spec)
    addresses = {
        name: node.name for node in job.nodes for name in (node.address, node.hostname, node.ip, node.host) if name
    }
    facts = Facts(job, partial(code.sent, job))
    return root_cause.explain(ranks, blamed, names, tail, diagnosis_rules.of(task.project_id), addresses, facts)


def note_left_running(task: Task, attempt: Attempt) -> None:
    """Record findings about programs that the ranks of a successful attempt left running."""
    if found := root_cause.left_running(_ranks(attempt), _names(task)):
        findings.note(task.pk, attempt.number, found)


def _wrong_numbers(ranks: Sequence[RankSeen], names: Sequence[str]) -> diagnosis.Finding | None:
    """Return the finding for ranks that joined under other rank numbers; such ranks fail in many ways, none of which
    says why."""
    places = {rank.rank: stragglers.Place(rank.node_rank, names[rank.node_rank]) for rank in ranks}
    return world_sizes.judge_numbers({rank.rank: rank.joined_as for rank in ranks}, places)


def _note(task: Task, attempt: Attempt, known: Told, level: Level | None = None) -> None:
    finding = known.finding()
    if finding is None:
        return
    finding = replace(finding, level=level or finding.level)
    codes = [
        root_cause.UNCAUGHT,
        root_cause.LIMIT_REACHED,
        root_cause.HOST_FULL,
        rules.OWN,
        *(r.code for r in rules.ours()),
    ]
    with transitions.owned(task):
        Finding.objects.filter(task=task, attempt=attempt.number, code__in=codes).exclude(code=finding.code).delete()
        findings.note(task.pk, attempt.number, [finding])


def reason(task: Task, attempt: Attempt) -> tuple[str, dict[str, Any]] | None:
    """Return the reason of a task that ends because its attempts all fail in the same way; None if they do not."""
    known = {"cause": attempt.outcome, **attempt.outcome_params}
    if hung := hangs_again(task, attempt):
        return Reason.HANG_LOOP, {**known, **hung}
    found = loop(task, attempt)
    return (Reason.CRASH_LOOP, {**known, **found}) if found else None


def hangs_again(task: Task, attempt: Attempt) -> dict[str, Any]:
    """Return `times` if the attempt ended by the same hang verdict on the same line of the script as the one before it;
    otherwise an empty dict. The script is to blame then, and a third attempt would find out nothing new."""
    line = _hung_at(attempt)
    if line is None or task.spec.get("on_crash_loop", "stop") == "restart":
        return {}
    earlier = sorted((one for one in task.attempts.all() if one.number < attempt.number), key=lambda one: -one.number)
    alike = sum(1 for _ in takewhile(lambda one: _hung_at(one) == line, earlier))
    return {"times": alike + 1} if alike else {}


def _hung_at(attempt: Attempt) -> tuple[str, str] | None:
    """Return the hang verdict and the script's line; None if it did not hang, or at no line of the script, as where a
    connection is dead."""
    place = attempt.outcome_params.get("place")
    return (attempt.outcome, place) if attempt.outcome in hangs.ENDING and isinstance(place, str) else None
