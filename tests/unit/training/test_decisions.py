"""The reconciler's decision table: every combination of what can be stored and what can be seen."""

from dataclasses import replace
from itertools import product

import pytest

from apps.training.states import FINAL_STATES, STATES_WITH_ATTEMPT, TRANSITIONS, TaskState, allowed_actions
from apps.training.states.decisions import ReconcileAction, ReconcileDecision, TaskFacts, decide_action
from apps.training.states.reasons import CAUSES, TaskReason
from fermi.diagnosis.hangs import GangLayout
from fermi.engines.failure_cause import MAX_IDLE_SECONDS
from fermi.jobs import causes as general
from fermi.jobs.causes import RANK_CODES
from fermi.jobs.spec import Cause, Observation, Phase, RankStatus

DECLARED = CAUSES | general.CAUSES
COMPLETED, STOPPED, RANK_FAILED, RANK_KILLED = map(
    DECLARED.__getitem__, ("COMPLETED", "STOPPED_BY_USER", "RANK_FAILED", "RANK_KILLED")
)
LOST = Cause("NODE_LOST_AT_LAST", {"node": "n"}, retry=True, underlying=True)
UNKNOWN = Cause("OF_AN_ENGINE_THAT_WAS_REMOVED")
ENDS = [
    COMPLETED, STOPPED, RANK_FAILED, RANK_KILLED, UNKNOWN,
    *map(DECLARED.__getitem__, ("RESIZING", "RUNNER_LOST", "START_FAILED", "START_TIMEOUT", "RUN_TIMEOUT")),
]  # fmt: skip
FACTS = [
    TaskFacts(*values)
    for values in product(sorted(STATES_WITH_ATTEMPT), (False, True), (False, True), (None, *ENDS), (0, 1))
    if not (
        values[0] is TaskState.STOPPING and values[3] is None
    )  # an attempt is being stopped only once its end is known
    and not (values[0] is TaskState.STARTING and values[3] is COMPLETED)  # what completed has been running
]
SEEN = [
    Observation(phase, left, cause=cause if phase is Phase.FAILED else None)
    for phase, left in product(Phase, (None, False, True))
    for cause in (RANK_KILLED, LOST)
]


@pytest.mark.parametrize("seen", SEEN, ids=lambda o: f"{o.phase}-left={o.left}")
def test_every_decision_is_an_allowed_transition_and_frees_nothing_too_early(seen):
    for facts in FACTS:
        check_invariants(facts, seen)


def check_invariants(facts, seen):
    decision = decide_action(facts, seen)
    if decision.to is not None:
        assert decision.to in TRANSITIONS[facts.state]
    if decision.act is ReconcileAction.CLOSE:
        assert seen.left is False
        assert facts.outcome is not None
    if seen.phase is Phase.UNKNOWN and not (facts.stop_requested or facts.overdue or facts.outcome):
        assert decision.act is ReconcileAction.WAIT
    if facts.outcome is not None and seen.left is not False and decision.act is not ReconcileAction.RECORD:
        assert decision.act in (ReconcileAction.CANCEL, ReconcileAction.MOVE)
    if decision.to is TaskState.QUEUED:
        assert facts.attempts_left > 0
        assert facts.outcome.retry
        assert not facts.stop_requested
    if decision.act is ReconcileAction.RECORD:
        assert facts.outcome is None or (facts.outcome.code in RANK_CODES and decision.cause.underlying)


STALLED = Observation(Phase.RUNNING, True, (RankStatus(0, 0, "running", 7, stalled={"since": 1000.0, "looks": 2}),))


@pytest.mark.parametrize("seen", [*SEEN, STALLED], ids=lambda o: f"{o.phase}-left={o.left}")
def test_facts_that_are_not_complete_lead_to_the_same_decision_or_to_loading_the_rest(seen):
    bad = CAUSES[TaskReason.BAD_LOSS]
    for known, found in product(FACTS, (None, bad)):
        complete = replace(known, end_cause=found, site=GangLayout(), on_hang="restart", moment=9000.0)
        batch = replace(known, complete=False, may_have_end_cause=bool(found), attempts_left=0, moment=9000.0)
        decision = decide_action(batch, seen)
        if decision.act is not ReconcileAction.LOAD:
            assert decision == decide_action(complete, seen)
        assert decide_action(complete, seen).act is not ReconcileAction.LOAD


def test_only_a_task_whose_ranks_all_run_is_steady():
    def decide(phase=Phase.RUNNING, waiting=None, rank="running", still_since=None, **facts):
        ranks = (RankStatus(0, 0, "running", 7), RankStatus(1, 1, rank, 8, still_since=still_since))
        facts = TaskFacts(facts.pop("state", TaskState.RUNNING), complete=False, moment=1000.0, **facts)
        return decide_action(facts, Observation(phase, True, ranks, waiting=waiting))

    assert decide() == ReconcileDecision(ReconcileAction.WAIT, steady=True)
    for other in (
        decide(ends_soon=True),
        decide(rank="waiting"),
        decide(still_since=999.0),
        decide(waiting=Cause("ENGINE_AWAY")),
        decide(phase=Phase.UNKNOWN),
        decide(state=TaskState.STARTING),
    ):
        assert not other.steady


@pytest.mark.parametrize(
    ("state", "phase", "act"),
    [
        (TaskState.STARTING, Phase.ABSENT, ReconcileAction.SUBMIT),
        (TaskState.STARTING, Phase.STARTING, ReconcileAction.SUBMIT),
        (TaskState.STARTING, Phase.RUNNING, ReconcileAction.MOVE),
        (TaskState.RUNNING, Phase.RUNNING, ReconcileAction.WAIT),
        (TaskState.RUNNING, Phase.STARTING, ReconcileAction.WAIT),
        (TaskState.RUNNING, Phase.ABSENT, ReconcileAction.RECORD),
        (TaskState.RUNNING, Phase.FAILED, ReconcileAction.RECORD),
        (TaskState.RUNNING, Phase.SUCCEEDED, ReconcileAction.RECORD),
        (TaskState.STARTING, Phase.SUCCEEDED, ReconcileAction.MOVE),
    ],
)
def test_the_observation_of_a_running_attempt_decides(state, phase, act):
    assert decide_action(TaskFacts(state), Observation(phase, left=True)).act is act


@pytest.mark.parametrize(("hangs", "outcome"), [(1, COMPLETED), (0, CAUSES[TaskReason.NEVER_ENDED])])
def test_a_rank_that_never_exits_is_ended_and_fails_the_task_only_as_rank_0(hangs, outcome):
    done = RankStatus(1 - hangs, 1 - hangs, "exited", 7, 0, 1000.0)
    seen = Observation(Phase.RUNNING, True, (done, RankStatus(hangs, hangs, "running", 8, still_since=1000.0)))
    decision = decide_action(TaskFacts(TaskState.RUNNING, moment=1000.0 + MAX_IDLE_SECONDS), seen)
    assert (decision.act, decision.cause.code, decision.cause.params["ranks"]) == (
        ReconcileAction.RECORD,
        outcome.code,
        [hangs],
    )
    assert decide_action(TaskFacts(TaskState.RUNNING, moment=1000.0), seen).act is ReconcileAction.WAIT
    assert decide_action(TaskFacts(TaskState.RUNNING, outcome=outcome), seen).act is ReconcileAction.CANCEL


def test_a_running_attempt_that_disappeared_was_lost():
    """Whoever deleted it took all that could tell of it."""
    for seen in (Observation(Phase.ABSENT), Observation(Phase.FAILED)):
        assert decide_action(TaskFacts(TaskState.RUNNING), seen) == ReconcileDecision(
            ReconcileAction.RECORD, cause=Cause(TaskReason.ATTEMPT_LOST)
        )
    assert CAUSES[TaskReason.ATTEMPT_LOST].retry


def test_the_engines_waiting_reason_is_shown_and_explains_a_start_timeout():
    waits = Observation(Phase.STARTING, left=True, waiting=Cause("SHORT_OF_GPUS", {"node": "n1"}))
    assert decide_action(TaskFacts(TaskState.STARTING), waits) == ReconcileDecision(
        ReconcileAction.SUBMIT, cause=waits.waiting
    )
    assert decide_action(TaskFacts(TaskState.STARTING, overdue=True), waits) == ReconcileDecision(
        ReconcileAction.RECORD, cause=waits.waiting
    )


def test_waiting_in_the_engines_queue_is_never_overdue():
    waits = Observation(Phase.STARTING, left=True, waiting=Cause("IN_A_QUEUE", patient=True))
    assert decide_action(TaskFacts(TaskState.STARTING, overdue=True), waits).act is ReconcileAction.SUBMIT
    assert (
        decide_action(TaskFacts(TaskState.STARTING, overdue=True, stop_requested=True), waits).act
        is ReconcileAction.RECORD
    )


def test_a_suspended_attempt_is_over_if_it_ran_and_waits_otherwise():
    waits = Observation(Phase.STARTING, left=True, waiting=Cause("SUSPENDED", {"node": "n1"}, halts=True))
    assert decide_action(TaskFacts(TaskState.RUNNING), waits) == ReconcileDecision(
        ReconcileAction.RECORD, cause=waits.waiting
    )
    assert decide_action(TaskFacts(TaskState.STARTING), waits) == ReconcileDecision(
        ReconcileAction.SUBMIT, cause=waits.waiting
    )


def test_a_success_counts_even_when_a_stop_was_requested():
    decision = decide_action(
        TaskFacts(TaskState.RUNNING, stop_requested=True), Observation(Phase.SUCCEEDED, left=False)
    )
    assert decision.cause.code == TaskReason.COMPLETED


def test_an_attempt_to_be_resized_saves_ends_and_is_followed():
    runs = Observation(Phase.RUNNING, left=True)
    resizing = CAUSES[TaskReason.RESIZING]
    assert decide_action(TaskFacts(TaskState.RUNNING, resize_requested=True), runs) == ReconcileDecision(
        ReconcileAction.RECORD, cause=resizing
    )
    assert (
        decide_action(TaskFacts(TaskState.STARTING, resize_requested=True), Observation(Phase.STARTING)).act
        is ReconcileAction.SUBMIT
    )
    facts = TaskFacts(TaskState.RUNNING, outcome=resizing, attempts_left=1, resize_requested=True)
    assert decide_action(facts, runs).act is ReconcileAction.CANCEL
    assert resizing.asked, "ranks get the task's whole grace"
    assert decide_action(facts, Observation(Phase.FAILED, left=False)).to is TaskState.QUEUED
    stopped = TaskFacts(TaskState.RUNNING, stop_requested=True, resize_requested=True)
    assert decide_action(stopped, runs).cause.code == TaskReason.STOPPED_BY_USER
    assert (
        decide_action(TaskFacts(TaskState.RUNNING, resize_requested=True), Observation(Phase.SUCCEEDED)).cause
        == COMPLETED
    )


def test_a_stop_wins_over_a_failure_seen_at_the_same_time():
    decision = decide_action(TaskFacts(TaskState.RUNNING, stop_requested=True), Observation(Phase.FAILED, left=True))
    assert decision.cause.code == TaskReason.STOPPED_BY_USER


def test_a_stop_during_the_cleanup_of_a_failure_prevents_the_restart():
    facts = TaskFacts(TaskState.RUNNING, stop_requested=True, outcome=RANK_FAILED, attempts_left=3)
    assert decide_action(facts, Observation(Phase.FAILED, left=False)).to is TaskState.STOPPING


def test_a_host_found_lost_during_the_end_replaces_a_ranks_error():
    lost = Observation(Phase.FAILED, left=False, cause=LOST)
    facts = TaskFacts(TaskState.RUNNING, outcome=RANK_FAILED, attempts_left=1)
    assert decide_action(facts, lost) == ReconcileDecision(ReconcileAction.RECORD, cause=lost.cause)
    assert decide_action(TaskFacts(TaskState.RUNNING, outcome=LOST, attempts_left=1), lost).to is TaskState.QUEUED
    facts = TaskFacts(TaskState.STOPPING, stop_requested=True, outcome=STOPPED)
    assert decide_action(facts, lost).to is TaskState.STOPPED


@pytest.mark.parametrize(
    ("outcome", "attempts_left", "state", "to"),
    [
        (COMPLETED, 0, TaskState.RUNNING, TaskState.SUCCEEDED),
        (RANK_KILLED, 1, TaskState.RUNNING, TaskState.QUEUED),
        (RANK_KILLED, 0, TaskState.RUNNING, TaskState.FAILED),
        (CAUSES[TaskReason.START_FAILED], 1, TaskState.STARTING, TaskState.QUEUED),
        (CAUSES[TaskReason.RUN_TIMEOUT], 5, TaskState.RUNNING, TaskState.FAILED),
        (UNKNOWN, 5, TaskState.RUNNING, TaskState.FAILED),
        (STOPPED, 5, TaskState.STOPPING, TaskState.STOPPED),
        (RANK_FAILED, 5, TaskState.STOPPING, TaskState.STOPPED),
    ],
)
def test_an_attempt_without_leftovers_closes_with_its_outcome(outcome, attempts_left, state, to):
    facts = TaskFacts(state, outcome=outcome, attempts_left=attempts_left)
    assert decide_action(facts, Observation(Phase.FAILED, left=False)).to is to


@pytest.mark.parametrize(("overdue", "code"), [(False, ""), (True, TaskReason.STOP_UNCONFIRMED)])
def test_an_unconfirmed_end_is_reported_and_retried(overdue, code):
    facts = TaskFacts(TaskState.STOPPING, overdue=overdue, outcome=STOPPED)
    decision = decide_action(facts, Observation(Phase.UNKNOWN))
    assert (decision.act, decision.cause.code) == (ReconcileAction.CANCEL, code)


@pytest.mark.parametrize("state", [TaskState.INITIALIZING, TaskState.QUEUED])
def test_without_an_attempt_only_stop_and_deadline_end_a_task(state):
    assert decide_action(TaskFacts(state), None).act in (ReconcileAction.PREPARE, ReconcileAction.LEASE)
    assert decide_action(TaskFacts(state, stop_requested=True), None).to is TaskState.STOPPED
    assert decide_action(TaskFacts(state, overdue=True), None).to is TaskState.FAILED


def test_final_states_have_no_transition_and_can_be_deleted():
    assert {state for state in TaskState if "delete" in allowed_actions(state)} == FINAL_STATES
    assert all("stop" in allowed_actions(state) for state in (TaskState.QUEUED, TaskState.STARTING, TaskState.RUNNING))


def test_a_finding_in_the_output_ends_running_and_failed_attempts_only():
    bad = CAUSES[TaskReason.BAD_LOSS]
    for phase in (Phase.RUNNING, Phase.FAILED):
        decision = decide_action(
            TaskFacts(TaskState.RUNNING, end_cause=bad), Observation(phase, True, cause=RANK_FAILED)
        )
        assert (decision.act, decision.cause) == (ReconcileAction.RECORD, bad)
    assert (
        decide_action(TaskFacts(TaskState.RUNNING, end_cause=bad), Observation(Phase.SUCCEEDED)).cause.code
        == TaskReason.COMPLETED
    )
    assert (
        decide_action(TaskFacts(TaskState.RUNNING, True, end_cause=bad), Observation(Phase.RUNNING)).cause.code
        == TaskReason.STOPPED_BY_USER
    )
    assert (
        decide_action(TaskFacts(TaskState.RUNNING, end_cause=bad), Observation(Phase.UNKNOWN)).act
        is ReconcileAction.WAIT
    )


def stuck(rank, into=""):
    said = {"since": 1000.0, "looks": 2, "still": True, "step": 60, "in": into, "at": "train.py:1 in main"}
    said |= {"locked": not into}
    return RankStatus(rank, 0, "running", 100 + rank, stalled=said)


@pytest.mark.parametrize("on_hang", ["restart", "stop", "report"])
def test_a_certain_hang_ends_the_attempt_unless_configured_to_report(on_hang):
    seen = Observation(Phase.RUNNING, True, (stuck(0, "all_reduce"), stuck(1)))
    decision = decide_action(TaskFacts(TaskState.RUNNING, moment=1012.0, on_hang=on_hang), seen)
    assert decision.act is (ReconcileAction.WAIT if on_hang == "report" else ReconcileAction.RECORD)
    assert decision.cause.code == TaskReason.HANG
    assert decision.cause.params["ranks"] == "1"


def test_a_suspicion_ends_nothing_and_is_no_reason_until_it_lasts():
    sleeps = RankStatus(1, 0, "running", 101, stalled={**stuck(1).stalled, "waits": "hrtimer_nanosleep"})
    seen = Observation(Phase.RUNNING, True, (stuck(0, "all_reduce"), sleeps))
    assert decide_action(TaskFacts(TaskState.RUNNING, moment=1012.0, on_hang="restart"), seen) == ReconcileDecision(
        ReconcileAction.WAIT
    )
    later = decide_action(TaskFacts(TaskState.RUNNING, moment=9000.0, on_hang="restart"), seen)
    assert (later.act, later.cause.code) == (ReconcileAction.WAIT, TaskReason.HANG_SUSPECTED)


def test_a_likely_hang_is_a_reason_and_ends_the_attempt_only_when_it_lasts():
    reads = RankStatus(1, 0, "running", 101, stalled={**stuck(1).stalled, "locked": False})
    seen = Observation(Phase.RUNNING, True, (stuck(0, "all_reduce"), reads))
    found = [
        decide_action(TaskFacts(TaskState.RUNNING, moment=moment, on_hang="restart"), seen)
        for moment in (1012.0, 1601.0)
    ]
    assert [one.act for one in found] == [ReconcileAction.WAIT, ReconcileAction.RECORD]
    assert [one.cause.code for one in found] == [TaskReason.HANG] * 2


def test_ranks_left_by_a_success_are_ended_as_a_success():
    seen = Observation(Phase.RUNNING, True, (RankStatus(0, 0, "exited", 100, 0, 1000.0), stuck(1)))
    decision = decide_action(TaskFacts(TaskState.RUNNING, moment=1012.0, on_hang="restart"), seen)
    assert (decision.act, decision.cause.code) == (ReconcileAction.RECORD, TaskReason.COMPLETED)
    assert decision.cause.params == {"ranks": [1], "node": [0], "seconds": 12}


GAVE_WAY = DECLARED["GAVE_WAY"]


@pytest.mark.parametrize("state", [TaskState.STARTING, TaskState.RUNNING])
def test_a_preempted_task_ends_its_attempt_and_is_requeued_at_no_cost(state):
    seen = Observation(Phase.RUNNING, True)
    facts = TaskFacts(state, leave=GAVE_WAY, attempts_left=1)
    assert decide_action(facts, seen) == ReconcileDecision(ReconcileAction.RECORD, cause=GAVE_WAY)
    ended = TaskFacts(state, leave=GAVE_WAY, outcome=GAVE_WAY, attempts_left=1)
    assert decide_action(ended, seen).act is ReconcileAction.CANCEL
    assert decide_action(ended, Observation(Phase.ABSENT, False)) == ReconcileDecision(
        ReconcileAction.CLOSE, TaskState.QUEUED
    )
    assert (GAVE_WAY.retry, GAVE_WAY.asked, GAVE_WAY.free) == (True, True, general.ALWAYS_FREE)


def test_completion_precedes_preemption_and_a_stop_precedes_a_pause():
    done = TaskFacts(TaskState.RUNNING, leave=DECLARED["PAUSED"])
    assert decide_action(done, Observation(Phase.SUCCEEDED, False)).cause.code == TaskReason.COMPLETED
    stopped = TaskFacts(TaskState.RUNNING, stop_requested=True, leave=DECLARED["PAUSED"])
    assert decide_action(stopped, Observation(Phase.RUNNING, True)).cause.code == TaskReason.STOPPED_BY_USER
