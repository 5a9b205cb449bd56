"""One answer to "why?" for a task in any state, on any engine, in every language; and what may be done about it."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils.translation import override

from apps.accounts.models import Membership, Role, User
from apps.clusters.models import AvailabilityZone, DevEnvironment, Lease
from apps.common.clock import now
from apps.training.api.diagnosis import serialize_diagnosis
from apps.training.core import findings as ground
from apps.training.models import Attempt, Checkpoint, Node, Task
from apps.training.presenters import findings as shown
from apps.training.presenters import selectors
from apps.training.services import diagnosis
from apps.training.states import FINAL_STATES, TaskState
from apps.training.states.reasons import CAUSES, TaskReason
from fermi import messages
from fermi.diagnosis import Evidence, Finding, Level, Where, actions, diagnose
from fermi.diagnosis.actions import ActionCode, build_action
from fermi.jobs.spec import Cause, Problem, RankProgress, RankStatus
from fermi.messages import NestedText
from fermi.planning import plugins
from tests import goldens
from tests.apps.attempts import begin_attempt, pulse_of, write

pytestmark = pytest.mark.django_db

PARAMS: dict[str, Any] = {
    **dict.fromkeys(re.findall(r"{(\w+)}", str(messages.list_texts("en"))), "x"),
    "holders": [{"environment": "a", "task": "task-y"}], "held": "a (task-y)", "rank": 1, "nodeRank": 1,
    "node": "env-b",
    "path": "/data", "secret": "TOKEN", "cause": "RANK_FAILED", "evidence": "one\ntwo",
}  # fmt: skip
"""Everything that any text takes."""


LINE = diagnose.QueuePosition(
    3, 12, begins=1600.0, early=1300.0, late=4600.0,
    ahead=[diagnose.BlockingTask("task-a", "first", until=1600.0), diagnose.BlockingTask("task-b", "second"),
           diagnose.BlockingTask()],
    sooner=[Problem("", "SOONER_SHORTER", {"seconds": 3600, "hours": "1.0"}),
            Problem("", "SOONER_FEWER_GPUS", {"wanted": "4", "instead": "2", "zone": "z"})],
)  # fmt: skip


def every_cause() -> dict[str, Cause]:
    found = dict(CAUSES)
    for engine in plugins.BACKENDS:
        found |= plugins.get_causes(engine)
    return found


def facts(state: str, reason: Cause | None = None, **more: Any) -> diagnose.TaskFacts:
    ranks = [RankStatus(0, 0, "running"), RankStatus(1, 1, "waiting")]
    known = {"since": 900.0, "moment": 1000.0, "nodes": ["env-a", "env-b"], "world_size": 2, "attempt": 1,
             "ranks": ranks, "ends_at": 1500.0}  # fmt: skip
    return diagnose.TaskFacts(state, reason=reason, **{**known, **more})


@pytest.mark.parametrize("lang", messages.LANGUAGES)
def test_every_state_and_cause_has_a_diagnosis(lang: str, monkeypatch: pytest.MonkeyPatch) -> None:
    causes = [replace(cause, params=PARAMS) for cause in every_cause().values()]
    gaps: list[str] = []
    monkeypatch.setattr(messages, "report_fault", lambda said, *about: gaps.append(said % about))
    with override(lang):
        for state in TaskState:
            for reason in [None, *causes]:
                outcome = reason or Cause("RANK_FAILED", PARAMS)
                ended = [
                    diagnose.PastAttempt(1, 100.0, outcome, 300.0, last_step=80),
                    diagnose.PastAttempt(2, 400.0, outcome, 800.0, "/c/60", from_step=60, last_step=90),
                ]
                for attempts, line in ((), None), (ended, LINE):
                    known = facts(state, reason, attempts=attempts, attempt=len(attempts), next_step=60, line=line)
                    found = diagnose.diagnose(known)
                    line, _ = shown.translate_text(found.summary)
                    assert line, (state, reason)
                    assert "\n" not in line.replace("one\ntwo", "")
                    assert state != TaskState.FAILED or not found.healthy
                    for one in found.findings:
                        said = shown.serialize_finding(
                            one, [shown.serialize_action(act, act.params, allowed=True) for act in one.finding.actions]
                        )
                        assert said["message"]
                        assert said["level"] == "info" or said["actions"], (state, one.finding.code)
    assert not gaps


def test_an_attempt_without_checkpoint_shows_the_steps_to_redo() -> None:
    first = diagnose.PastAttempt(1, 100.0, Cause("RANK_FAILED", PARAMS), 300.0, last_step=2101)
    waits = facts("queued", Cause("RESTARTING", PARAMS), attempts=[first])
    again = facts("running", attempts=[first, diagnose.PastAttempt(2, 400.0)], attempt=2)
    saved = facts(
        "running", attempts=[first, diagnose.PastAttempt(2, 400.0, resumed_from="/c", from_step=2000)], attempt=2
    )
    others = facts("running", attempts=[first, diagnose.PastAttempt(2, 400.0, resumed_from="/of/another")], attempt=2)
    said = [
        [(one.code, one.params["lost"]) for told in diagnose.diagnose(known).findings for one in told.finding.evidence
         if one.code.startswith("WENT_ON")]
        for known in (waits, again, saved, others)
    ]  # fmt: skip
    assert said == [[("WENT_ON_WITHOUT", "2,101")], [("WENT_ON_WITHOUT", "2,101")], [("WENT_ON_FROM", "101")], []]


def test_a_healthy_task_is_one_line() -> None:
    ranks = [RankStatus(rank, rank // 7, "running") for rank in range(14)]
    pulses = {rank: RankProgress(rank, 1000.0, "running", 1204, 999.8, 1 / 3.1) for rank in range(14)}
    known = facts("running", ranks=ranks, pulses=pulses, world_size=14, step=1204, total_steps=5000)
    found = diagnose.diagnose(known)
    assert found.healthy
    assert not found.findings
    with override("en"):
        assert shown.translate_text(found.summary)[0] == (
            "Running normally: step 1,204 of 5,000, 3.1 steps/s, 14 of 14 ranks, last step 0.2 s ago."
        )


def test_a_suspected_hang_is_not_reported_as_healthy() -> None:
    doubt = Finding("HANG_SUSPECTED", Level.INFO, {"seconds": 40}, since=950.0)
    found = diagnose.diagnose(facts("running", stored=[diagnose.StoredFinding(doubt, 1)]))
    assert not found.healthy
    assert found.summary.code == "HANG_SUSPECTED"
    assert diagnose.diagnose(facts("running", stored=[diagnose.StoredFinding(doubt, 1, until=960.0)])).healthy


def test_the_worst_open_finding_is_the_summary() -> None:
    slow = diagnose.StoredFinding(Finding("STARTING_X", Level.WARN, since=990.0), 1)
    hang = diagnose.StoredFinding(Finding("HANGS_X", Level.FAIL, {"n": 1}, since=950.0), 1)
    over = diagnose.StoredFinding(Finding("WAS_X", Level.FAIL, since=999.0), 1, until=999.5)
    before = diagnose.StoredFinding(Finding("EARLIER_X", Level.FAIL, since=200.0), 0, until=300.0)
    found = diagnose.diagnose(facts("running", stored=[slow, over, hang, before]))
    assert [one.finding.code for one in found.findings] == ["HANGS_X", "STARTING_X", "WAS_X", "EARLIER_X"]
    assert not found.healthy
    assert found.summary == NestedText("HANGS_X", {"n": 1})
    assert diagnose.diagnose(facts("running", stored=[over, before])).healthy
    assert diagnose.diagnose(facts("succeeded", stored=[hang])).healthy


def test_a_crash_loop_shows_its_cause_once_and_fixing_it_first() -> None:
    """The reason, what was found of its last attempt, and each of its attempts said the same."""
    end = {"rank": 1, "nodeRank": 0, "node": "env-a", "exitCode": 1, "exception": "ValueError: bad", "at": "train.py:8"}
    ended = [
        diagnose.PastAttempt(number, 100.0 * number, Cause("RANK_FAILED", end), 100.0 * number + 4) for number in (1, 2)
    ]
    reason = Cause("CRASH_LOOP", {**end, "cause": "RANK_FAILED", "times": 2})
    trace = Evidence("ENGINE_SAID", lines=["Traceback"])
    stored = Finding(
        "UNCAUGHT_EXCEPTION",
        Level.FAIL,
        end,
        where=[Where(1, 0, "env-a")],
        evidence=[trace],
        actions=[build_action(ActionCode.SEE_LOG, rank=1), build_action(ActionCode.EDIT_SCRIPT, at="train.py:8")],
    )
    known = facts("failed", reason, attempts=ended, attempt=2, stored=[diagnose.StoredFinding(stored, 2)])
    findings = [one.finding for one in diagnose.diagnose(known).findings if one.until is None]
    assert [one.code for one in findings] == ["CRASH_LOOP"]
    [loop] = findings
    assert [act.code for act in loop.actions][:2] == [ActionCode.EDIT_SCRIPT, ActionCode.SEE_LOG]
    assert loop.actions[-1] == build_action(ActionCode.CHANGE_FIELD, field="onCrashLoop", to="restart")
    assert trace in loop.evidence
    with override("en"):
        told = [shown.translate_text(NestedText(one.code, one.params))[0] for one in loop.evidence]
        assert "Attempt 2 ended the same way after 4.0 s." in told
        assert sum("ValueError" in line for line in told) == 0
        label = shown.serialize_action(loop.actions[-1], loop.actions[-1].params, allowed=True)
        assert (label["label"], label["params"]["field"]) == ("Restart even after repeated failures", "onCrashLoop")
        raised = shown.serialize_action(build_action(ActionCode.RAISE_LIMIT, field="hangSeconds"), {}, allowed=True)
        assert raised["label"] == "Raise the hang timeout"
    other = replace(ended[0], outcome=Cause("RUNNER_LOST", PARAMS))
    known = facts("failed", reason, attempts=[other, ended[1]], attempt=2)
    tried = [one.params for one in diagnose.diagnose(known).findings[0].finding.evidence if one.code == "ATTEMPT_TRIED"]
    assert [params.get("outcome") for params in tried] == ["RUNNER_LOST", None], "what is another cause is said"


def test_steps_that_a_restart_does_again_are_counted() -> None:
    lost = Cause("RUNNER_LOST", PARAMS, retry=True, lost=True)
    attempts = [diagnose.PastAttempt(1, 1.0, lost, 50.0, last_step=1250)]
    reason = Cause(TaskReason.RESTARTING, {**PARAMS, "cause": "RUNNER_LOST"})
    known = facts("queued", reason, attempts=attempts, next_step=1200, max_attempts=4, begins_at=1007.0)
    [told] = diagnose.diagnose(known).findings
    with override("en"):
        assert [shown.translate_text(NestedText(one.code, one.params))[0] for one in told.finding.evidence[1:]] == [
            "Next: attempt 2 of at most 4.", "It starts in 7.0 s.",
            "It continues from the checkpoint of step 1,200; 50 steps are repeated.",
        ]  # fmt: skip


def test_a_waiting_task_shows_position_blockers_and_start_time() -> None:
    reason = Cause(TaskReason.WAITING_FOR_TURN, {"ahead": 2})
    [told] = diagnose.diagnose(facts("queued", reason, line=LINE, attempt=0)).findings
    with override("en"):
        said = [shown.translate_text(NestedText(one.code, one.params))[0] for one in told.finding.evidence]
        assert said[:4] == [
            "Position 3 of 12 in the queue.", "Task first must end first, which is expected in 10 min.",
            "Task second must end first.", "1 more task must end first.",
        ]  # fmt: skip
        assert said[4] == "It is expected to start in 10 min: between 5 min and 60 min from now."
    assert [(one.code, one.params) for one in told.finding.actions] == [
        (ActionCode.CHANGE_FIELD, {"field": "maxRunSeconds", "to": 3600}),
        (ActionCode.CHANGE_FIELD, {"field": "distributedConfig.select"}), (ActionCode.SEE_TASK, {"task": "task-a"}),
        (ActionCode.SEE_TASK, {"task": "task-b"}), (ActionCode.WAIT, {}),
    ]  # fmt: skip
    later = replace(LINE, late=None)
    [told] = diagnose.diagnose(facts("queued", reason, line=later, attempt=0)).findings
    assert told.finding.evidence[4].params.keys() == {"left", "early"}
    nobody = replace(LINE, begins=None, early=None, late=None, sooner=())
    [told] = diagnose.diagnose(facts("queued", reason, line=nobody, attempt=0)).findings
    assert told.finding.evidence[-1].code == "QUEUE_BEGINS_UNKNOWN"


def test_a_paused_task_is_healthy_and_can_be_resumed() -> None:
    found = diagnose.diagnose(facts("queued", Cause(TaskReason.PAUSED, {"by": "owner"}), attempt=0))
    [told] = found.findings
    assert found.healthy
    assert [one.code for one in told.finding.actions] == [ActionCode.RESUME]


# --- of a stored task ---


@pytest.fixture
def stored(task: Task, user: User) -> Task:
    """On two environments, the second of which has a spare."""
    zone = AvailabilityZone.objects.create(name="z")
    for name in ("env-a", "env-b", "env-c"):
        DevEnvironment.objects.create(pk=name, name=name, project=task.project, cluster=task.cluster, zone=zone)
    job = goldens.job("env-003", spares=("env-c",))
    nodes = [replace(job.nodes[0], id=name, name=name, gpu_count=0) for name in ("env-a", "env-b")]
    task.spec = replace(job, nodes=tuple(nodes), master="env-a").to_json()
    task.request = {"taskName": "t", "environmentIds": ["env-a", "env-b"], "spareEnvironmentIds": ["env-c"], "env": {}}
    task.world_size = 2
    task.save()
    for node_rank, name in enumerate(("env-a", "env-b")):
        Node.objects.create(task=task, node_rank=node_rank, environment_id=name, name=name, zone="z", processes=1)
        Lease.objects.create(environment_id=name, holder=task.pk)
    Membership.objects.filter(user=user).update(role=Role.MAINTAINER)
    return task


def answer(task: Task, user: User) -> dict[str, Any]:
    with override("en"):
        found = diagnosis.diagnose_task(user, Task.objects.select_related("cluster").get(pk=task.pk))
        return serialize_diagnosis(found)


@pytest.mark.database
def test_a_failed_task_shows_the_failed_ranks_last_lines_and_attempts(stored: Task, user: User) -> None:
    failed = {"rank": 1, "nodeRank": 1, "node": "env-b", "exitCode": 1}
    Attempt.objects.filter(task=stored).update(outcome="RANK_FAILED", outcome_params=failed)
    Checkpoint.objects.create(task=stored, attempt=1, step=20, path="/c/20", at=now())
    begin_attempt(stored, 2)
    Attempt.objects.filter(task=stored, number=2).update(outcome="RANK_FAILED", outcome_params=failed, ended_at=now())
    Task.objects.filter(pk=stored.pk).update(
        state=TaskState.FAILED, due_at=None, reason="RANK_FAILED", reason_params=failed
    )
    noise = "".join(f"step {step}\n" for step in range(400))
    write(stored, noise + 'Traceback (most recent call last):\n  File "train.py"\nValueError: bad\n', attempt=2, rank=1)
    found = answer(stored, user)
    newest, before = found["findings"]
    assert not found["healthy"]
    assert found["summary"] == newest["message"]
    assert newest["where"] == [{"rank": 1, "nodeRank": 1, "node": "env-b"}]
    assert newest["evidence"][0]["lines"][0].startswith("Traceback")
    assert newest["evidence"][0]["lines"][-1] == "ValueError: bad"
    assert [one["message"].partition(" after")[0] for one in newest["evidence"][1:]] == [
        f"Attempt {number} ended the same way" for number in (1, 2)
    ]
    assert (before["attempt"], before["level"], before["until"] is None) == (1, "info", False)
    assert {one["code"] for one in newest["actions"] if one["allowed"]} == {
        "EDIT_SCRIPT", "SEE_LOG", "RESTART_FROM_CHECKPOINT",
    }  # fmt: skip


def test_a_waiting_task_shows_holders_and_since_when(stored: Task, user: User) -> None:
    Lease.objects.all().delete()
    Task.objects.filter(pk=stored.pk).update(
        state=TaskState.QUEUED, attempt=0, reason="WAITING_FOR_ENVIRONMENTS",
        reason_params={"held": "env-a (task-y)", "holders": [{"environment": "env-a", "task": "task-y"}]},
    )  # fmt: skip
    stored.attempts.all().delete()
    other = Task.objects.get(pk=stored.pk)
    other.pk, other.name = "task-y", "nightly"
    other.save(force_insert=True)
    Lease.objects.create(environment_id="env-a", holder="task-y")
    Lease.objects.filter(environment="env-a").update(since=now() - timedelta(minutes=130))
    found = answer(stored, user)
    [finding] = found["findings"]
    assert found["healthy"]
    assert finding["level"] == "info"
    assert finding["evidence"][0]["message"] == "env-a is held by task nightly of reader, for 2 h 10 min."
    assert (finding["actions"][0]["code"], finding["actions"][0]["params"]) == ("SEE_TASK", {"task": "task-y"})
    Task.objects.filter(pk="task-y").update(project=stored.project.__class__.objects.create(name="secret"))
    [hidden] = answer(stored, user)["findings"]
    assert hidden["evidence"][0]["message"] == "env-a is held by task task-y, for 2 h 10 min."


def node_finding() -> Finding:
    about = {"nodeRank": 1, "node": "env-b"}
    return Finding(
        "ENVIRONMENT_CORDONED", Level.WARN, {"environment": "env-b"}, where=[Where(3, 1, "env-b")],
        evidence=[Evidence("ENGINE_SAID", lines=["a", "b"])],
        actions=[
            build_action(ActionCode.USE_SPARE, **about),
            build_action(ActionCode.WITHOUT_NODE, **about),
            build_action(ActionCode.CORDON, **about),
            build_action(ActionCode.STOP),
        ],
    )  # fmt: skip


def test_a_finding_shows_the_actions_that_its_reader_may_take(stored: Task, user: User) -> None:
    ground.record_findings(stored.pk, 1, [node_finding()])
    found = answer(stored, user)
    [finding] = found["findings"]
    assert finding["evidence"][0]["lines"] == ["a", "b"]
    allowed = {one["code"]: one["allowed"] for one in finding["actions"]}
    assert allowed == {"USE_SPARE": True, "WITHOUT_NODE": False, "CORDON": True, "STOP": True}
    assert finding["actions"][0]["params"] == {"nodeRank": 1, "node": "env-b", "environmentId": "env-b"}
    Lease.objects.create(environment_id="env-c", holder="task-z")
    Membership.objects.filter(user=user).update(role=Role.MEMBER)
    assert [one["allowed"] for one in answer(stored, user)["findings"][0]["actions"]] == [False, False, False, True]
    Membership.objects.filter(user=user).update(role=Role.VIEWER)
    assert not any(one["allowed"] for one in answer(stored, user)["findings"][0]["actions"])


def test_a_list_shows_the_worst_finding_of_each_active_task(stored: Task, user: User) -> None:
    def finding() -> Any:
        [row] = selectors.query_tasks(user)
        return selectors.serialize_brief(row, "en")["finding"]

    assert finding() is None
    ground.record_findings(
        stored.pk, 1, [node_finding(), Finding("COMPLETED", Level.INFO), Finding("ATTEMPT_LOST", Level.FAIL)]
    )
    assert (finding()["code"], finding()["level"]) == ("ATTEMPT_LOST", "fail")
    before = pulse_of(user, stored)
    ground.resolve_findings(stored.pk, 1, "ATTEMPT_LOST")
    assert finding()["code"] == "ENVIRONMENT_CORDONED"
    after = pulse_of(user, stored)
    assert before
    assert after
    assert before.fingerprint != after.fingerprint
    Task.objects.filter(pk=stored.pk).update(state=TaskState.FAILED, due_at=None)
    assert finding() is None


def test_a_final_state_offers_no_action_of_a_running_task() -> None:
    for state in FINAL_STATES:
        for one in diagnose.diagnose(facts(state, Cause("RANK_FAILED", PARAMS, retry=True))).findings:
            assert not {act.code for act in one.finding.actions} & {ActionCode.STOP, ActionCode.WAIT}
    assert set(actions.ACTIONS) == set(ActionCode)


# --- what restarts cost ---


def restarted(*, from_step: int | None = None, first: int = 1, reached: int = 1240, state: str = "running") -> Any:
    """Whose second attempt began at the step `first`."""
    attempts = [
        diagnose.PastAttempt(1, 100.0, Cause("RANK_FAILED", PARAMS), 3700.0, first_step=1, last_step=reached),
        diagnose.PastAttempt(2, 3800.0, resumed_from="/c" if from_step else "", from_step=from_step, first_step=first),
    ]
    told = diagnose.diagnose(facts(state, attempts=attempts, attempt=2))
    return next((one.finding for one in told.findings if one.finding.code == "BEGAN_ANEW"), None)


def test_after_a_restart_that_began_anew_what_was_lost_is_said() -> None:
    found = restarted()
    assert (found.level, found.params["lost"], found.params["before"]) == (Level.INFO, "1,240", 1)
    text = messages.render_text("BEGAN_ANEW", "en", **{**found.params, "duration": "60 min"})[0]
    assert text == ("Attempt 2 began where the task began: 1,240 steps of attempt 1 were lost, which had taken 60 min.")
    told = restarted(from_step=1200)
    assert (told.level, told.params["step"]) == (Level.WARN, "1,200"), "a checkpoint was there, and was not taken"
    assert list(told.actions) == [build_action(ActionCode.CHANGE_FIELD, field="entrypoint.resume.args")]


def test_an_attempt_that_resumed_has_lost_nothing_of_note() -> None:
    assert restarted(from_step=1200, first=1200) is None
    assert restarted(first=700) is None, "it found a checkpoint of its own"
    assert restarted(reached=1) is None


def test_what_each_restart_would_lose_is_a_finding_with_its_remedy() -> None:
    loss = diagnose.RestartLoss(11_400.0, 300, "--resume_from_checkpoint {path}")
    told = diagnose.diagnose(facts("running", restart_loss=loss))
    [found] = [one.finding for one in told.findings]
    assert told.healthy
    assert (found.code, found.level, found.params["step"]) == ("RESTART_BEGINS_ANEW", Level.INFO, "300")
    assert [(one.code, one.params) for one in found.actions] == [
        ("CHANGE_FIELD", {"field": "entrypoint.resume.args", "to": "--resume_from_checkpoint {path}"})
    ]
    few = diagnose.diagnose(facts("running", restart_loss=diagnose.RestartLoss(599.0)))
    assert few.findings == ()
