"""What is seen of an attempt, by what its folder and Slurm say. Nothing is guessed."""

from typing import Any

import pytest

from fermi import messages
from fermi.engines.slurm import causes, driver, state
from fermi.engines.slurm.driver import SlurmJob
from fermi.engines.slurm.pending_queue import PendingQueue
from fermi.engines.slurm.rundir import RunDirContents
from fermi.jobs.spec import Handle, Phase

HANDLE = Handle("task-1-1", "task-1", 1, world_size=2)
NOTHING = RunDirContents(None, 0, 0, {}, None, None)
ORDER = {"nodes": 2, "names": ["a", "b"]}
NOW = 1_000_000.0


def node(rank: int, what: str = "running", code: int | None = None, **more: Any) -> dict[str, Any]:
    entry = {"rank": rank, "local_rank": 0, "pid": 100 + rank, "state": what, "exit_code": code, "ended_at": None}
    return {"state": "exited" if what == "exited" else "running", "ranks": [entry], "asked": "", "cause": None, **more}


def seen(*statuses: dict[str, Any], stop: dict[str, Any] | None = None, **more: Any) -> RunDirContents:
    values = {"submitted": 7, "begun": 7 if statuses else 0, "end": None, **more}
    return RunDirContents(ORDER, statuses=dict(enumerate(statuses)), stop=stop, **values)


def job(state: str, *flags: str, **more: Any) -> SlurmJob:
    values = {"leader": 7, "comment": "fermi:task-1-1", "end": NOW - 60, "nodes": "n[1-2]", **more}
    return SlurmJob(id=values.pop("id", 7), state=state, flags=frozenset(flags), **values)


def observe_run(found: RunDirContents, *jobs: SlurmJob) -> tuple[str, bool | None, str]:
    one = state.build_observation(found, jobs, HANDLE, NOW)
    return one.phase.value, one.left, (one.cause or one.waiting or causes.Cause("")).code


RUNNING = (node(0), node(1))
DONE = (node(0, "exited", 0), node(1, "exited", 0))
FAILED = (node(0, "exited", 1), node(1, "exited", -15))
STOP = {"grace_seconds": 0.0, "kill_at": NOW - 100}
ASKED = tuple(node(rank, "exited", 143, asked="SIGTERM") for rank in (0, 1))
SAVED = tuple(node(rank, "exited", 0, asked="SIGTERM") for rank in (0, 1))
IN_TIME = tuple(node(rank, "exited", 0, asked="SIGURG") for rank in (0, 1))
WARNED = tuple(node(rank, "exited", 143, asked="SIGURG") for rank in (0, 1))

TABLE: list[tuple[str, RunDirContents, tuple[SlurmJob, ...], tuple[str, bool | None, str]]] = [
    ("nothing at all", NOTHING, (), ("absent", None, "")),
    ("cancelled before it was submitted", RunDirContents(None, 0, 0, {}, STOP, None), (), ("absent", False, "")),
    ("its folder is not there", NOTHING, (job("RUNNING"),), ("unknown", True, "")),
    ("forgotten, and over", NOTHING, (job("COMPLETED"),), ("absent", None, "")),
    ("written and not taken yet", seen(submitted=0), (), ("absent", None, "")),
    ("in the queue", seen(), (job("PENDING", reason="Priority"),), ("starting", True, "QUEUE_WAITING")),
    ("held", seen(), (job("PENDING", reason="JobHeldUser"),), ("starting", True, "JOB_HELD")),
    (
        "its node is drained", seen(),
        (job("PENDING", reason="Resources", detail="Nodes_required_for_job_are_DOWN,_DRAINED"),),
        ("starting", True, "NODE_UNAVAILABLE"),
    ),
    ("behind others who want its node too", seen(),
     (job("PENDING", reason="ReqNodeNotAvail", detail="ReqNodeNotAvail,_UnavailableNodes:n1", start=NOW + 600),),
     ("starting", True, "QUEUE_WAITING")),
    ("behind others, as newer versions say it", seen(),
     (job("PENDING", reason="ReqNodeNotAvail", detail="ReqNodeNotAvail, May be reserved for other job"),),
     ("starting", True, "QUEUE_WAITING")),
    ("its node is down, and nobody knows until when", seen(),
     (job("PENDING", reason="ReqNodeNotAvail", detail="ReqNodeNotAvail,_UnavailableNodes:n1"),),
     ("starting", True, "NODE_UNAVAILABLE")),
    ("over the limits", seen(), (job("PENDING", reason="PartitionTimeLimit"),), ("starting", True, "JOB_IMPOSSIBLE")),
    ("its nodes come up", seen(), (job("RUNNING", "CONFIGURING"),), ("starting", True, "")),
    ("one node of two runs", seen(node(0)), (job("RUNNING"),), ("starting", True, "")),
    ("running", seen(*RUNNING), (job("RUNNING"),), ("running", True, "")),
    ("suspended", seen(*RUNNING), (job("SUSPENDED"),), ("running", True, "")),
    ("in a state that nobody knows", seen(*RUNNING), (job("DANCING"),), ("running", True, "")),
    ("all ranks ended well, the job is about to", seen(*DONE), (job("RUNNING"),), ("succeeded", True, "")),
    ("succeeded", seen(*DONE), (job("COMPLETED"),), ("succeeded", False, "")),
    ("succeeded, and the last word is not to be seen yet", seen(*RUNNING), (job("COMPLETED", end=NOW),),
     ("unknown", True, "")),
    ("succeeded, and the last word was never seen", seen(*RUNNING), (job("COMPLETED"),), ("succeeded", False, "")),
    ("a rank failed", seen(*FAILED), (job("RUNNING"),), ("failed", True, "RANK_FAILED")),
    ("a rank failed and the job ended", seen(*FAILED), (job("FAILED"),), ("failed", False, "RANK_FAILED")),
    ("a rank failed and we cancelled", seen(*FAILED, stop=STOP), (job("CANCELLED"),), ("failed", False, "RANK_FAILED")),
    ("scancelled", seen(*RUNNING), (job("CANCELLED"),), ("failed", False, "JOB_CANCELLED")),
    ("scancelled just now", seen(*ASKED), (job("CANCELLED", "COMPLETING"),), ("failed", True, "JOB_CANCELLED")),
    ("being ended by nobody knows whom", seen(*ASKED), (job("", "COMPLETING"),), ("unknown", True, "")),
    ("saved and ended well because the job is cancelled", seen(*SAVED), (job("CANCELLED"),),
     ("failed", False, "JOB_CANCELLED")),
    ("saved and ended well because it is preempted", seen(*SAVED), (job("PREEMPTED"),), ("failed", False, "PREEMPTED")),
    ("saved and ended well before its time limit", seen(*IN_TIME), (job("COMPLETED"),),
     ("failed", False, "TIME_LIMIT")),
    ("saved and ended well, and forgotten", seen(*SAVED, end=0), (), ("failed", False, "JOB_CANCELLED")),
    ("asked to end and not told why yet", seen(*ASKED), (job("RUNNING"),), ("unknown", True, "")),
    ("warned, and ending before the limit", seen(*WARNED), (job("RUNNING"),), ("failed", True, "TIME_LIMIT")),
    ("warned, and ended before the limit", seen(*WARNED), (job("FAILED"),), ("failed", False, "TIME_LIMIT")),
    ("warned, and stopped by us", seen(*WARNED, stop=STOP), (job("CANCELLED"),), ("failed", False, "RANK_FAILED")),
    ("sent a signal by somebody", seen(*ASKED), (job("FAILED"),), ("failed", False, "JOB_CANCELLED")),
    ("out of time", seen(*RUNNING), (job("TIMEOUT"),), ("failed", False, "TIME_LIMIT")),
    ("preempted", seen(*ASKED), (job("PREEMPTED"),), ("failed", False, "PREEMPTED")),
    ("out of memory", seen(*FAILED), (job("OUT_OF_MEMORY"),), ("failed", False, "OUT_OF_MEMORY")),
    ("a machine failed", seen(*RUNNING), (job("NODE_FAIL"),), ("failed", False, "NODE_LOST")),
    (
        "a machine of one component failed, so the other was cancelled", seen(*RUNNING),
        (job("CANCELLED"), job("NODE_FAIL", id=8)), ("failed", False, "NODE_LOST"),
    ),
    ("a runner was killed", seen(*RUNNING, end={"exit_code": 137}), (job("FAILED"),), ("failed", False, "RUNNER_LOST")),
    ("no python", seen(begun=7, end={"exit_code": 2}), (job("FAILED"),), ("failed", False, "JOB_FAILED")),
    ("cancelled in the queue", seen(stop=STOP), (job("CANCELLED"),), ("absent", False, "")),
    ("a second job that may not run", seen(*RUNNING), (job("RUNNING"), job("FAILED", id=9, leader=9)),
     ("running", True, "")),
    ("the second job still waits", seen(*DONE), (job("COMPLETED"), job("PENDING", id=9, leader=9)),
     ("succeeded", True, "")),
    ("aged out after it succeeded", seen(*DONE), (), ("succeeded", False, "")),
    ("aged out after it failed", seen(*FAILED), (), ("failed", False, "RANK_FAILED")),
    ("lost while it ran", seen(*RUNNING), (), ("failed", None, "JOB_LOST")),
    ("lost, and ended since", seen(*RUNNING, stop=STOP), (), ("failed", False, "JOB_LOST")),
    ("lost, and perhaps about to end", seen(*RUNNING, stop={**STOP, "kill_at": NOW}), (), ("failed", None, "JOB_LOST")),
    ("lost in the queue", seen(), (), ("failed", None, "JOB_LOST")),
    ("lost in the queue and cancelled", seen(stop=STOP), (), ("failed", False, "JOB_LOST")),
]  # fmt: skip


@pytest.mark.parametrize(("found", "jobs", "wanted"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_an_observation_follows_from_files_and_job_state(
    found: RunDirContents, jobs: tuple[SlurmJob, ...], wanted: tuple[str, bool | None, str]
) -> None:
    assert observe_run(found, *jobs) == wanted


def test_a_runner_that_gave_up_gives_the_reason() -> None:
    alone = node(1, "waiting", cause={"code": "MASTER_UNREACHABLE", "evidence": "gn7:29500: refused"})
    one = state.build_observation(seen(node(0, "waiting"), {**alone, "state": "exited"}), [job("RUNNING")], HANDLE, NOW)
    assert (one.phase, one.cause.code, one.cause.params["node"]) == (Phase.FAILED, "MASTER_UNREACHABLE", "b")


@pytest.mark.parametrize(
    "cause",
    [
        {"code": "MASTER_PORT_TAKEN", "port": 29500, "holder": "pid 7 (nc)"},
        {"code": "MASTER_PORT_TAKEN", "port": 29500, "holder": None, "evidence": "[Errno 98] Address already in use"},
        {"code": "DISK_FULL", "path": "/scratch", "free": 0, "total": 1 << 30, "rank": 0},
    ],
)
def test_a_problem_found_by_a_runner_is_the_cause(cause: dict[str, Any]) -> None:
    broken = node(0, "exited", 1, cause=cause)
    for jobs in ([job("RUNNING")], [job("FAILED")], []):
        one = state.build_observation(seen(broken, node(1), end={}), jobs, HANDLE, NOW)
        assert one.cause is not None
        assert (one.cause.code, one.cause.params["node"]) == (cause["code"], "a")
        assert messages.render_text(one.cause.code, "en", **one.cause.params)


def test_a_stalled_rank_reports_since_when() -> None:
    hangs = node(1)
    hangs["ranks"][0]["still_since"] = 12.5
    one = state.build_observation(seen(node(0, "exited", 0), hangs), [job("RUNNING")], HANDLE, NOW)
    assert [rank.still_since for rank in one.ranks] == [None, 12.5]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("RUNNING", ("RUNNING", set())),
        ("COMPLETING", ("", {"COMPLETING"})),
        ("CONFIGURING", ("", {"CONFIGURING"})),
        ("CANCELLED by 0", ("CANCELLED", set())),
        (["CANCELLED", "COMPLETING"], ("CANCELLED", {"COMPLETING"})),
        ("NODE_FAIL", ("NODE_FAIL", set())),
        ([], ("", set())),
    ],
)
def test_states_and_flags_of_any_version_are_parsed(said: Any, wanted: tuple[str, set[str]]) -> None:
    name, flags = driver.split_state(said)
    assert (name, set(flags)) == wanted


def test_jobs_of_old_and_new_versions_are_parsed() -> None:
    old = {"job_id": 8, "het_job_id": 7, "comment": "fermi:x-1", "job_state": "FAILED", "exit_code": 256, "end_time": 5}
    code = {"return_code": {"set": True, "number": 1}, "signal": {"id": {"set": False}}}
    times = {"het_job_id": {"set": True, "number": 7}, "end_time": {"set": True, "number": 5}}
    new = {**old, **times, "job_state": ["FAILED"], "exit_code": code}
    assert driver.parse_job(old) == driver.parse_job(new)
    assert (driver.parse_job(old).leader, driver.parse_job(old).exit_code) == (7, 1)


def pending(number: int, priority: int, partition: str = "main", **more: Any) -> SlurmJob:
    values = {"leader": number, "comment": "", "reason": "Priority", "priority": priority, **more}
    return SlurmJob(id=number, state="PENDING", partition=partition, **values)


def test_a_position_counts_startable_jobs_of_the_partition_by_priority() -> None:
    jobs = [
        pending(1, 50), pending(2, 70), pending(3, 50), pending(4, 90, "other"), pending(5, 60, "other,main"),
        pending(6, 0, reason="JobHeldUser"), pending(7, 99, reason="Dependency"),
        pending(8, 80), pending(9, 80, leader=8),  # the components of one
        SlurmJob(10, 10, "", "RUNNING", partition="main", priority=99),
    ]  # fmt: skip
    line = PendingQueue(jobs)
    places = {job.id: line.find_position(job) for job in jobs}
    assert places == {8: 1, 9: 1, 2: 2, 5: 2, 1: 4, 3: 5, 4: 1, 6: None, 7: None, 10: None}


def test_position_and_expected_start_are_reported_where_known() -> None:
    ours = job("PENDING", reason="Priority", partition="main", priority=50, start=NOW + 3599)
    params = state.build_observation(seen(), [ours], HANDLE, NOW, PendingQueue([pending(3, 60), ours])).waiting.params
    assert (params["position"], NOW + 3540 <= params["begins"] < NOW + 3600) == (2, True)
    for lang in messages.LANGUAGES:
        said, _ = messages.render_text("QUEUE_WAITING", lang, **params)
        assert "1970-01-12 14:46 UTC" in said
        assert "2" in said
    late = job("PENDING", reason="Priority", partition="main", priority=50, start=NOW)
    assert "begins" not in state.build_observation(seen(), [late], HANDLE, NOW).waiting.params, (
        "Slurm never tells a past moment"
    )
