"""The decision of a pass over an environment, over its whole table; and when one that nobody uses stops."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from apps.environments.states import ARROWS, AT_REST, WITH_RUN, State, Wanted, allowed_actions
from apps.environments.states.decisions import Act, Facts, decide
from apps.environments.states.idling import Idle, Use, judge, stops_at
from apps.environments.states.limits import backoff
from apps.environments.states.reasons import CAUSES, Reason, cause
from fermi.engines.environments import HostedPhase, HostedSeen
from fermi.jobs.spec import Cause
from fermi.planning import plugins

BAD = Cause("IMAGE_BAD")
SEEN = [
    HostedSeen(phase, left, cause, waiting)
    for phase in HostedPhase
    for left in (True, False, None)
    for cause in (None, BAD)
    for waiting in (None, Cause("PULLING"), Cause("QUEUE_WAITING", patient=True))
]
OUTCOMES = [None, CAUSES[Reason.STOPPED], CAUSES[Reason.LOST], BAD]
YES_NO = (False, True)


def all_facts() -> list[Facts]:
    return [
        Facts(state, wanted, CAUSES[Reason.STOPPED], sent, outcome, restart, retries, True, overdue, on_demand, idle)
        for state, wanted, sent, outcome, restart, retries, overdue, on_demand, idle in product(
            State, Wanted, YES_NO, OUTCOMES, YES_NO, (0, 3), YES_NO, YES_NO, Idle
        )
    ]


def test_every_decision_is_one_that_can_be_carried_out() -> None:
    for facts in all_facts():
        if facts.state not in WITH_RUN:
            decisions = [decide(facts, None)]
        elif facts.outcome is None and facts.state is State.STOPPING:
            continue  # an end is recorded with its outcome, in one transaction
        elif facts.outcome is not None and facts.state is not State.STOPPING:
            continue
        else:
            decisions = [decide(facts, seen) for seen in SEEN]
        for one in decisions:
            if one.to is not None:
                assert one.to in ARROWS[facts.state], (facts, one)
            assert (one.act in (Act.MOVE, Act.RECORD, Act.CLOSE, Act.BEGIN)) == (one.to is not None), (facts, one)
            if one.act in (Act.RECORD, Act.CLOSE):
                assert one.cause.code, "whatever ends says why"


def test_nothing_happens_because_of_what_is_not_known() -> None:
    for facts in all_facts():
        running = facts.state in (State.STARTING, State.RUNNING)
        asked = facts.wanted is not Wanted.RUNNING or facts.restart or facts.idle is not Idle.USED
        if running and facts.outcome is None and not asked:
            assert decide(facts, HostedSeen(HostedPhase.UNKNOWN)).act is Act.WAIT


def test_only_an_engine_that_confirms_it_ends_the_wait_for_what_is_left() -> None:
    for facts in all_facts():
        if facts.state is State.STOPPING and facts.outcome is not None:
            for seen in SEEN:
                assert (decide(facts, seen).act is Act.STOP) == (seen.left is not False)


def test_what_may_pass_is_tried_again_and_nothing_else() -> None:
    gone = HostedSeen(HostedPhase.ENDED, left=False)
    facts = Facts(State.STOPPING, outcome=CAUSES[Reason.LOST], retries=1)
    assert decide(facts, gone).to is State.STOPPED
    assert decide(replace(facts, retries=0), gone).to is State.FAILED
    assert decide(replace(facts, outcome=BAD), gone).to is State.FAILED
    assert decide(replace(facts, wanted=Wanted.STOPPED), gone).to is State.FAILED
    assert decide(Facts(State.STOPPED), None).act is Act.BEGIN
    assert decide(Facts(State.STOPPED, rested=False), None).act is Act.WAIT


@pytest.mark.parametrize(
    ("code", "to"),
    [
        ("ENVIRONMENT_OVER_ITS_SIZE", State.FAILED),  # until somebody starts it, to remove files
        ("ENVIRONMENT_FILLED_THE_DISK", State.STOPPED),  # and begun again, once there is room
        ("ENVIRONMENT_WITHOUT_ROOM", State.STOPPED),
    ],
)
def test_an_environment_that_its_disk_ended_is_begun_again_where_room_may_come(code: str, to: State) -> None:
    outcome = cause(code, {}, plugins.causes("local"))
    ending = Facts(State.STOPPING, Wanted.RUNNING, CAUSES[Reason.STOPPED], outcome=outcome, retries=3)
    decision = decide(ending, HostedSeen(HostedPhase.ENDED, False))
    assert (decision.act, decision.to, decision.cause) == (Act.CLOSE, to, outcome)


def test_a_run_of_which_nothing_is_there_counts_as_running_where_it_begins_on_demand() -> None:
    absent = HostedSeen(HostedPhase.ABSENT)
    assert decide(Facts(State.RUNNING, sent=True), absent).cause.code == Reason.LOST
    assert decide(Facts(State.RUNNING, sent=True, on_demand=True), absent).act is Act.WAIT
    assert decide(Facts(State.RUNNING, on_demand=True), absent).act is Act.START
    assert decide(Facts(State.STARTING, sent=True, on_demand=True), absent).to is State.RUNNING
    assert decide(Facts(State.STARTING, sent=True), absent).act is Act.START


def test_an_engines_queue_is_never_overdue() -> None:
    late = Facts(State.STARTING, sent=True, overdue=True)
    patient = HostedSeen(HostedPhase.STARTING, waiting=Cause("QUEUE_WAITING", patient=True))
    assert decide(late, patient).act is Act.WAIT
    assert decide(late, HostedSeen(HostedPhase.STARTING, waiting=BAD)).cause == BAD
    assert decide(late, HostedSeen(HostedPhase.STARTING)).cause.code == Reason.START_TIMEOUT


@pytest.mark.parametrize("state", State)
def test_somebody_who_may_change_nothing_is_offered_nothing(state: State) -> None:
    assert allowed_actions(state, Wanted.RUNNING, changes=False) == []
    assert "start" in allowed_actions(State.STOPPED, Wanted.STOPPED)
    assert "start" not in allowed_actions(state, Wanted.RUNNING)
    assert state in AT_REST or "delete" not in allowed_actions(state, Wanted.DELETED)


def test_what_a_task_trains_in_is_neither_stopped_nor_changed() -> None:
    assert allowed_actions(State.RUNNING, Wanted.RUNNING, idles=True, held=True) == ["open", "keep", "clone"]


NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def test_one_that_nobody_uses_is_warned_of_and_then_stops() -> None:
    use = Use(NOON, NOON, minutes=60)
    assert stops_at(use) == NOON + HOUR
    assert judge(replace(use, moment=NOON + 49 * MINUTE)) is Idle.USED
    assert judge(replace(use, moment=NOON + 50 * MINUTE)) is Idle.WARN
    warned = replace(use, warned=NOON + 50 * MINUTE)
    assert judge(replace(warned, moment=NOON + 59 * MINUTE)) is Idle.USED
    assert judge(replace(warned, moment=NOON + HOUR)) is Idle.STOP


def test_who_is_told_late_has_the_time_all_the_same() -> None:
    late = Use(NOON + 3 * HOUR, NOON, minutes=60)
    assert judge(late) is Idle.WARN
    told = replace(late, warned=NOON + 3 * HOUR)
    assert judge(told) is Idle.USED
    assert judge(replace(told, moment=NOON + 3 * HOUR + 10 * MINUTE)) is Idle.STOP


def test_one_that_is_used_again_after_the_warning_is_warned_of_anew() -> None:
    use = Use(NOON + 2 * HOUR, NOON + HOUR, minutes=60, warned=NOON + 50 * MINUTE)
    assert judge(use) is Idle.WARN


def test_one_that_is_kept_or_used_or_without_a_limit_never_stops() -> None:
    late = Use(NOON + 9 * HOUR, NOON, minutes=60, warned=NOON + HOUR)
    assert judge(late) is Idle.STOP
    assert judge(replace(late, keep_until=NOON + 10 * HOUR, warned=None)) is Idle.USED
    assert judge(replace(late, now=True)) is Idle.USED
    assert judge(replace(late, minutes=None)) is Idle.USED


def test_patience_grows_with_each_end_in_a_row() -> None:
    assert [backoff(number).total_seconds() for number in range(4)] == [0, 5, 15, 35]
