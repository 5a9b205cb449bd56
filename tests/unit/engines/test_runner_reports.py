"""What scripts write in their runner's name stops nobody: it is believed where it has the shape, and not said where it
has not."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermi import messages
from fermi.engines import logfiles, runner_reports
from fermi.engines.failure_cause import build_rank_status
from fermi.engines.kubernetes import names
from fermi.engines.kubernetes import state as kubernetes
from fermi.engines.kubernetes.gang import Gang
from fermi.engines.slurm import state as slurm
from fermi.engines.slurm.driver import SlurmJob
from fermi.engines.slurm.rundir import RunDir, RunDirContents
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause, Handle, Observation, RankProgress
from fermi.schema import sanitize
from tests.sampling import examples

HANDLE = Handle("task-1-1", "task-1", 1, world_size=2)
ENTRY = {
    "rank": 1,
    "state": "running",
    "pid": 7,
    "exit_code": None,
    "ended_at": None,
    "asked": False,
    "still_since": 2.5,
}
ERROR = {
    "type": "ValueError", "message": "bad shape (4, 7)", "file": "train.py", "line": 88, "function": "forward",
    "at": 9.5, "step": 12, "refused": None,
}  # fmt: skip
KILL = {
    "by": "memory", "scope": "cgroup", "limit": 1 << 30, "used": None, "gpu": None, "xid": None, "line": None,
    "processes": None, "port": None, "holder": None, "task": None, "rank": None, "started": None, "fixed": None,
}  # fmt: skip
SEQUENCE = {"op": "all_reduce", "seq": 12, "group": "0", "sizes": [[4, 7]]}
IN_A_GROUP = {**SEQUENCE, "ranks": None, "name": None, "root": None}
STALLED = {
    "since": 8.5, "looked_at": 17.0, "looks": 1, "still": True, "phase": "running", "step": 417, "in": "all_reduce",
    "for": 8.4, "op": IN_A_GROUP, "at": "train.py:120 in step", "stack": ["wait (torch/distributed/x.py:1)"],
    "threads": ["data.py:7 in refresh"], "children": False, "moves": False, "timed": True, "locked": False, "gpu": True,
    "stopped": {"pid": 7, "signal": "SIGSTOP", "tracer": ""}, "ras": ["NCCL version 2.27.3"], "cpu": 0.01,
    "state": "S", "waits": "futex_wait", "links": [{"peer": "10.0.0.2", "port": 4711, "unacked": 9, "retries": 3,
    "seconds": 4.5}], "flight": {"groups": {"0": {"enqueued": 12, "completed": 11}},
    "last": [{**SEQUENCE, "dtype": "Float", "state": "started"}]},
}  # fmt: skip
NEWS = {"error": ERROR, "stalled": STALLED, "kill": KILL}
PULSE = {
    "rank": 1, "phase": "running", "step": 417, "stepped_at": 8.5, "step_seconds": 0.2, "collectives": 900,
    "waiting": 0.25, "printed_at": 8.0, "gpu_bytes": 1 << 30, "rss_bytes": 1 << 28, "cpu": 1.5,
}  # fmt: skip
NAMES = ["state", "ranks", "asked", "cause", "kill_at", "job", "nodes", "names"]
ODD: list[Any] = [
    None, True, 0, 1, -1, 255, 1 << 70, 10**400, 0.5, -0.5, float("inf"), float("nan"),
    "", "exited", "DISK_FULL", "\0", "\ud800", "9" * 9999,
    [], [[]], [0], [None], [0, 1], [[0, 1]], [[0, 1, 2.5]], [[0, "1", 2.5]], [{"rank": 0}], [ENTRY], [[ENTRY]],
    {}, {"code": "DISK_FULL"}, {"code": 5}, {"code": "MASTER_PORT_TAKEN", "port": []}, {"ranks": [ENTRY]}, ENTRY,
]  # fmt: skip
"""What a hostile or unlucky script may put where something else is expected."""
ANYTHING = st.sampled_from(ODD)


def like(value: Any) -> st.SearchStrategy[Any]:
    """It, with anything in the place of any of its parts."""
    if isinstance(value, dict):
        return st.fixed_dictionaries({}, optional={name: like(one) for name, one in value.items()}) | ANYTHING
    if isinstance(value, list):
        return st.lists(st.one_of(map(like, value)), max_size=3) | ANYTHING
    return ANYTHING | st.just(value)


LIKE_AN_ENTRY = st.fixed_dictionaries(
    {name: ANYTHING | st.just(value) for name, value in ENTRY.items()},
    optional={name: like(value) for name, value in NEWS.items()},
)
LIKE_A_CAUSE = st.fixed_dictionaries({"code": st.just("DISK_FULL") | ANYTHING, "free": ANYTHING})
LIKE_A_STATUS = st.fixed_dictionaries(
    {
        "state": st.sampled_from(["running", "exited"]) | ANYTHING,
        "ranks": st.lists(LIKE_AN_ENTRY) | ANYTHING,
        "asked": ANYTHING,
        "cause": LIKE_A_CAUSE | ANYTHING,
    }
)
ROW = st.tuples(ANYTHING | st.just(0), ANYTHING | st.just(1), ANYTHING | st.just(5.0)).map(list)
LIKE_LAST_WORDS = st.fixed_dictionaries(
    {"ranks": st.lists(ROW) | ANYTHING, "asked": st.just([0]) | ANYTHING},
    optional=dict.fromkeys(("rank", "cause", "about", "detail", "tail", "terminated"), ANYTHING)
    | {name: like(value) for name, value in NEWS.items()},
)


@pytest.fixture(autouse=True, scope="module")
def as_for_people() -> Iterator[None]:
    """Words that a script made up may lack what a text needs; people get a dash there."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(messages, "report_fault", lambda *_: None)
        yield


def storable_and_tellable(seen: Observation) -> None:
    """As PostgreSQL's JSON and a page need it."""
    json.dumps(seen.to_json(), allow_nan=False)
    assert all(0 <= rank.rank <= 1 << 20 for rank in seen.ranks)
    for cause in filter(None, (seen.cause, seen.waiting)):
        assert sanitize.sanitize_params(cause.params) == cause.params
        for lang in messages.LANGUAGES:
            assert messages.render_text(cause.code, lang, **cause.params)


@settings(max_examples=examples(200))
@given(
    st.lists(LIKE_A_STATUS | ANYTHING, min_size=2, max_size=2),
    st.sampled_from(["RUNNING", "COMPLETED", "FAILED", None]),
)
def test_slurm_survives_arbitrary_files_in_the_shared_folder(found: list[Any], listed: str | None) -> None:
    statuses = {rank: status for rank, one in enumerate(found) if (status := runner_reports.parse_status(one))}
    jobs = [SlurmJob(7, 7, "fermi:task-1-1", listed, end=1.0)] if listed else []
    seen = RunDirContents({"nodes": 2, "names": ["a", "b"]}, 7, 7, statuses, None, None)
    storable_and_tellable(slurm.build_observation(seen, jobs, HANDLE, 1e9))


@settings(max_examples=examples(200))
@given(LIKE_LAST_WORDS | ANYTHING, st.lists(LIKE_AN_ENTRY) | ANYTHING)
def test_kubernetes_survives_arbitrary_pod_output(said: Any, ranks: Any) -> None:
    ended = {"exitCode": 1, "message": json.dumps(said), "finishedAt": "2026-11-21T08:00:00Z"}
    pod = {
        "metadata": {"name": "p", "uid": "u", "annotations": {names.PROCESSES: "2"}},
        "status": {"phase": "Failed", "containerStatuses": [{"name": names.CONTAINER, "state": {"terminated": ended}}]},
    }
    gang = Gang("task-1-1")
    gang.root = {"metadata": {"annotations": {names.NODES: "1", names.SUBMITTED: "yes"}}}
    gang.pods = {"p": pod}
    report = {0: {"ranks": runner_reports.parse_rank_entries(ranks), "drained": True}}
    storable_and_tellable(kubernetes.build_observation(gang, HANDLE, report))


def test_a_valid_runner_report_is_accepted() -> None:
    cause = {"code": "DISK_FULL", "path": "/data", "free": 0, "rank": 1}
    doing = {"code": "CODE_FETCHED", "files": 3}
    status = {"state": "exited", "ranks": [ENTRY], "asked": "SIGTERM", "asked_at": 3.5, "cause": cause, "doing": doing}
    status["boot_id"] = "x"
    assert runner_reports.parse_status(status) == {name: value for name, value in status.items() if name != "boot_id"}
    words = {"ranks": [[0, 1, 2.5], [1, None, None]], "asked": [1], "rank": 0, "tail": "Traceback", "terminated": 4.5}
    assert runner_reports.parse_termination_message(json.dumps(words)) == words


def test_a_rank_counts_once_and_must_be_valid() -> None:
    wrong = [{"rank": -1}, {"pid": 1 << 40}, {"state": "dancing"}, {"exit_code": 1e400}, {"ended_at": float("nan")}]
    found = [ENTRY, {**ENTRY, "pid": 8}, *({**ENTRY, "rank": 2, **more} for more in wrong), "rank", None]
    assert runner_reports.parse_rank_entries(found) == [ENTRY]


def test_findings_of_a_rank_are_validated_field_by_field() -> None:
    assert runner_reports.parse_rank_entries([{**ENTRY, **NEWS}]) == [{**ENTRY, **NEWS}]
    odd = {**NEWS, "error": {**ERROR, "line": "88", "more": 1, "message": "\0" * 9999}, "kill": "the kernel"}
    found = runner_reports.parse_rank_entries([{**ENTRY, **odd}])
    assert found == [
        {**ENTRY, "error": {**ERROR, "line": None, "message": "\N{REPLACEMENT CHARACTER}" * 500}, "stalled": STALLED}
    ]
    deep = {**STALLED, "stack": [1, *"abcdefghijklmnopqrst"], "op": {**SEQUENCE, "sizes": [[1] * 99] * 99}}
    (entry,) = runner_reports.parse_rank_entries([{**ENTRY, "stalled": deep}])
    assert entry["stalled"]["stack"] == list("abcdefghijklmno")
    assert entry["stalled"]["op"]["sizes"] == [[1] * 8] * 8


def test_the_start_time_of_a_rank_must_be_a_timestamp() -> None:
    trainer = {"step": 17, "total": 30, "epoch": 0.5, "every": 10}
    times = {"called_at": 1.5, "began_at": 2.5, "last_step": 17, "trainer": trainer, "joined_as": 0}
    (seen,) = [build_rank_status(entry, 0) for entry in runner_reports.parse_rank_entries([{**ENTRY, **times}])]
    assert (seen.called_at, seen.began_at, seen.last_step, seen.trainer, seen.joined_as) == (1.5, 2.5, 17, trainer, 0)
    wrong = {"called_at": "now", "began_at": float("nan"), "last_step": True, "trainer": {"step": -1}, "joined_as": "0"}
    assert runner_reports.parse_rank_entries([{**ENTRY, **wrong}]) == [ENTRY]
    (seen,) = [build_rank_status(entry, 0) for entry in runner_reports.parse_rank_entries([ENTRY])]
    assert (seen.called_at, seen.began_at) == (None, None)


def test_a_runner_without_findings_reports_as_before() -> None:
    assert runner_reports.parse_rank_entries([ENTRY]) == [ENTRY]
    (seen,) = [build_rank_status(entry, 0) for entry in runner_reports.parse_rank_entries([ENTRY])]
    assert (seen.error, seen.stalled, seen.kill) == (None, None, None)


def test_progress_needs_a_rank_and_a_timestamp() -> None:
    seen = RankProgress(**PULSE, at=9.0)
    assert runner_reports.parse_pulses([{**PULSE, "at": 9.0}, {**PULSE, "at": 9.5}, {"phase": "running"}, None]) == {
        1: seen
    }
    assert (
        runner_reports.parse_pulses([PULSE])
        == runner_reports.parse_pulses(None)
        == runner_reports.parse_pulses({"rank": 1})
        == {}
    )
    (odd,) = runner_reports.parse_pulses(
        [{"rank": 1, "at": 9.0, "phase": "dancing", "waiting": 7, "step": 1.5}]
    ).values()
    assert odd == RankProgress(1, 9.0)


@settings(max_examples=examples(100))
@given(like([{**PULSE, "at": 9.0}]))
def test_malformed_progress_does_not_raise(found: Any) -> None:
    json.dumps([asdict(seen) for seen in runner_reports.parse_pulses(found).values()], allow_nan=False)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "task-1-1")
    run.write(
        {"order.json": {"nodes": 1, "names": ["a"]}, "node-0.status.json": {"state": "running", "ranks": [ENTRY]}}
    )
    return run


@pytest.mark.parametrize(
    "name", ["order.json", "node-0.status.json", "stop.json", "submitted.json", "end.json", "slurm.log"]
)
@pytest.mark.parametrize("what", ["a pipe", "a link", "a folder", "nested", "endless", "a list", "strings"])
def test_arbitrary_files_of_a_job_stop_no_observer(run: RunDir, name: str, what: str) -> None:
    run.write({"secret.json": {"state": "running", "kill_at": 5, "job": 6, "nodes": 1, "names": ["stolen"]}})
    path = run.path / name
    path.unlink(missing_ok=True)
    match what:
        case "a pipe":
            os.mkfifo(path)
        case "a link":
            path.symlink_to(run.path / "secret.json")
        case "a folder":
            path.mkdir()
        case "nested":
            path.write_text("[" * 100_000)
        case "endless":
            with path.open("wb") as file:
                file.truncate(1 << 33)
        case "a list":
            path.write_text("[1, 2]")
        case "strings":
            path.write_text(json.dumps(dict.fromkeys(NAMES, "\0\ud800")))
    seen = run.read_contents()
    storable_and_tellable(slurm.build_observation(seen, (), HANDLE, 1e9))
    assert "stolen" not in str(seen)


def test_a_log_that_is_no_file_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0.log")
    (tmp_path / "1.log").symlink_to("/etc/hostname")
    assert [logfiles.read_chunk(tmp_path / f"{rank}.log", 0, 100).data for rank in (0, 1, 2)] == [b""] * 3


def test_causes_contain_only_what_a_database_accepts() -> None:
    params = {"tail": "a\0b\ud800", "at": float("inf"), "ranks": ["\0", {"\0": float("nan")}]}
    clean = {"tail": "a�b?", "at": None, "ranks": ["�", {"�": None}]}
    assert Cause("JOB_FAILED", params).params == clean
    assert BackendError("ENGINE_REJECTED", **params).params == clean
