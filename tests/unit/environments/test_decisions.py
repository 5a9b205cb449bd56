"""The decision of a pass over an environment, over its whole table; and when one that nobody uses stops."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from apps.environments.states import (
    STATES_AT_REST,
    STATES_WITH_RUN,
    TRANSITIONS,
    DesiredState,
    EnvironmentState,
    list_allowed_actions,
)
from apps.environments.states.deadlines import compute_backoff
from apps.environments.states.decisions import Act, EnvironmentFacts, decide_act
from apps.environments.states.idleness import IdleFacts, IdleVerdict, compute_stop_time, judge_idle
from apps.environments.states.reasons import CAUSES, EnvironmentReason, make_cause
from fermi.engines.environments import EnvironmentPhase, EnvironmentStatus
from fermi.jobs.spec import Cause
from fermi.planning import plugins

BAD = Cause("IMAGE_BAD")
SEEN = [
    EnvironmentStatus(phase, left, cause, waiting)
    for phase in EnvironmentPhase
    for left in (True, False, None)
    for cause in (None, BAD)
    for waiting in (None, Cause("PULLING"), Cause("QUEUE_WAITING", patient=True))
]
OUTCOMES = [None, CAUSES[EnvironmentReason.STOPPED], CAUSES[EnvironmentReason.LOST], BAD]
YES_NO = (False, True)


def all_facts() -> list[EnvironmentFacts]:
    return [
        EnvironmentFacts(
            state,
            wanted,
            CAUSES[EnvironmentReason.STOPPED],
            sent,
            outcome,
            restart,
            retries,
            True,
            overdue,
            on_demand,
            idle,
        )
        for state, wanted, sent, outcome, restart, retries, overdue, on_demand, idle in product(
            EnvironmentState, DesiredState, YES_NO, OUTCOMES, YES_NO, (0, 3), YES_NO, YES_NO, IdleVerdict
        )
    ]


def test_every_decision_can_be_carried_out() -> None:
    for facts in all_facts():
        if facts.state not in STATES_WITH_RUN:
            decisions = [decide_act(facts, None)]
        elif facts.outcome is None and facts.state is EnvironmentState.STOPPING:
            continue  # an end is recorded with its outcome, in one transaction
        elif facts.outcome is not None and facts.state is not EnvironmentState.STOPPING:
            continue
        else:
            decisions = [decide_act(facts, seen) for seen in SEEN]
        for one in decisions:
            if one.to is not None:
                assert one.to in TRANSITIONS[facts.state], (facts, one)
            assert (one.act in (Act.MOVE, Act.RECORD, Act.CLOSE, Act.BEGIN)) == (one.to is not None), (facts, one)
            if one.act in (Act.RECORD, Act.CLOSE):
                assert one.cause.code, "whatever ends says why"


def test_unknown_observations_change_nothing() -> None:
    for facts in all_facts():
        running = facts.state in (EnvironmentState.STARTING, EnvironmentState.RUNNING)
        asked = facts.desired_state is not DesiredState.RUNNING or facts.restart or facts.idle is not IdleVerdict.USED
        if running and facts.outcome is None and not asked:
            assert decide_act(facts, EnvironmentStatus(EnvironmentPhase.UNKNOWN)).act is Act.WAIT


def test_only_a_confirmed_end_completes_the_cleanup() -> None:
    for facts in all_facts():
        if facts.state is EnvironmentState.STOPPING and facts.outcome is not None:
            for seen in SEEN:
                assert (decide_act(facts, seen).act is Act.STOP) == (seen.left is not False)


def test_only_temporary_errors_are_retried() -> None:
    gone = EnvironmentStatus(EnvironmentPhase.ENDED, left=False)
    facts = EnvironmentFacts(EnvironmentState.STOPPING, outcome=CAUSES[EnvironmentReason.LOST], retries=1)
    assert decide_act(facts, gone).to is EnvironmentState.STOPPED
    assert decide_act(replace(facts, retries=0), gone).to is EnvironmentState.FAILED
    assert decide_act(replace(facts, outcome=BAD), gone).to is EnvironmentState.FAILED
    assert decide_act(replace(facts, desired_state=DesiredState.STOPPED), gone).to is EnvironmentState.FAILED
    assert decide_act(EnvironmentFacts(EnvironmentState.STOPPED), None).act is Act.BEGIN
    assert decide_act(EnvironmentFacts(EnvironmentState.STOPPED, rested=False), None).act is Act.WAIT


@pytest.mark.parametrize(
    ("code", "to"),
    [
        ("ENVIRONMENT_OVER_ITS_SIZE", EnvironmentState.FAILED),  # until somebody starts it, to remove files
        ("ENVIRONMENT_FILLED_THE_DISK", EnvironmentState.STOPPED),  # and begun again, once there is room
        ("ENVIRONMENT_WITHOUT_ROOM", EnvironmentState.STOPPED),
    ],
)
def test_an_environment_ended_by_its_disk_restarts_where_space_may_appear(code: str, to: EnvironmentState) -> None:
    outcome = make_cause(code, {}, plugins.get_causes("local"))
    ending = EnvironmentFacts(
        EnvironmentState.STOPPING, DesiredState.RUNNING, CAUSES[EnvironmentReason.STOPPED], outcome=outcome, retries=3
    )
    decision = decide_act(ending, EnvironmentStatus(EnvironmentPhase.ENDED, False))
    assert (decision.act, decision.to, decision.cause) == (Act.CLOSE, to, outcome)


def test_an_absent_run_counts_as_running_where_it_starts_on_demand() -> None:
    absent = EnvironmentStatus(EnvironmentPhase.ABSENT)
    assert (
        decide_act(EnvironmentFacts(EnvironmentState.RUNNING, sent=True), absent).cause.code == EnvironmentReason.LOST
    )
    assert decide_act(EnvironmentFacts(EnvironmentState.RUNNING, sent=True, on_demand=True), absent).act is Act.WAIT
    assert decide_act(EnvironmentFacts(EnvironmentState.RUNNING, on_demand=True), absent).act is Act.START
    assert (
        decide_act(EnvironmentFacts(EnvironmentState.STARTING, sent=True, on_demand=True), absent).to
        is EnvironmentState.RUNNING
    )
    assert decide_act(EnvironmentFacts(EnvironmentState.STARTING, sent=True), absent).act is Act.START


def test_waiting_in_the_engines_queue_is_never_overdue() -> None:
    late = EnvironmentFacts(EnvironmentState.STARTING, sent=True, overdue=True)
    patient = EnvironmentStatus(EnvironmentPhase.STARTING, waiting=Cause("QUEUE_WAITING", patient=True))
    assert decide_act(late, patient).act is Act.WAIT
    assert decide_act(late, EnvironmentStatus(EnvironmentPhase.STARTING, waiting=BAD)).cause == BAD
    assert decide_act(late, EnvironmentStatus(EnvironmentPhase.STARTING)).cause.code == EnvironmentReason.START_TIMEOUT


@pytest.mark.parametrize("state", EnvironmentState)
def test_viewers_are_offered_no_actions(state: EnvironmentState) -> None:
    assert list_allowed_actions(state, DesiredState.RUNNING, may_change=False) == []
    assert "start" in list_allowed_actions(EnvironmentState.STOPPED, DesiredState.STOPPED)
    assert "start" not in list_allowed_actions(state, DesiredState.RUNNING)
    assert state in STATES_AT_REST or "delete" not in list_allowed_actions(state, DesiredState.DELETED)


def test_an_environment_of_a_running_task_is_neither_stopped_nor_changed() -> None:
    assert list_allowed_actions(EnvironmentState.RUNNING, DesiredState.RUNNING, stops_when_idle=True, is_held=True) == [
        "open",
        "keep",
        "clone",
    ]


NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def test_an_idle_environment_is_warned_and_then_stopped() -> None:
    use = IdleFacts(NOON, NOON, minutes=60)
    assert compute_stop_time(use) == NOON + HOUR
    assert judge_idle(replace(use, moment=NOON + 49 * MINUTE)) is IdleVerdict.USED
    assert judge_idle(replace(use, moment=NOON + 50 * MINUTE)) is IdleVerdict.WARN
    warned = replace(use, warned=NOON + 50 * MINUTE)
    assert judge_idle(replace(warned, moment=NOON + 59 * MINUTE)) is IdleVerdict.USED
    assert judge_idle(replace(warned, moment=NOON + HOUR)) is IdleVerdict.STOP


def test_a_late_warning_gives_the_full_time() -> None:
    late = IdleFacts(NOON + 3 * HOUR, NOON, minutes=60)
    assert judge_idle(late) is IdleVerdict.WARN
    told = replace(late, warned=NOON + 3 * HOUR)
    assert judge_idle(told) is IdleVerdict.USED
    assert judge_idle(replace(told, moment=NOON + 3 * HOUR + 10 * MINUTE)) is IdleVerdict.STOP


def test_use_after_a_warning_resets_it() -> None:
    use = IdleFacts(NOON + 2 * HOUR, NOON + HOUR, minutes=60, warned=NOON + 50 * MINUTE)
    assert judge_idle(use) is IdleVerdict.WARN


def test_kept_used_and_unlimited_environments_never_stop() -> None:
    late = IdleFacts(NOON + 9 * HOUR, NOON, minutes=60, warned=NOON + HOUR)
    assert judge_idle(late) is IdleVerdict.STOP
    assert judge_idle(replace(late, keep_until=NOON + 10 * HOUR, warned=None)) is IdleVerdict.USED
    assert judge_idle(replace(late, now=True)) is IdleVerdict.USED
    assert judge_idle(replace(late, minutes=None)) is IdleVerdict.USED


def test_backoff_grows_with_consecutive_ends() -> None:
    assert [compute_backoff(number).total_seconds() for number in range(4)] == [0, 5, 15, 35]
