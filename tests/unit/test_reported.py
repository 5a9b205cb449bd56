"""What scripts write in their runner's name stops nobody: it is believed where it has the shape, and not said where it
has not."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermi import messages
from fermi.launch import storable
from fermi.launch.backends import logfiles, reported
from fermi.launch.backends.kubernetes import names
from fermi.launch.backends.kubernetes import state as kubernetes
from fermi.launch.backends.kubernetes.gang import Gang
from fermi.launch.backends.slurm import state as slurm
from fermi.launch.backends.slurm.driver import Job
from fermi.launch.backends.slurm.rundir import RunDir, Seen
from fermi.launch.errors import BackendError
from fermi.launch.spec import Cause, Handle, Observation

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
NAMES = ["state", "ranks", "asked", "cause", "kill_at", "job", "nodes", "names"]
ODD: list[Any] = [
    None, True, 0, 1, -1, 255, 1 << 70, 10**400, 0.5, -0.5, float("inf"), float("nan"),
    "", "exited", "DISK_FULL", "\0", "\ud800", "9" * 9999,
    [], [[]], [0], [None], [0, 1], [[0, 1]], [[0, 1, 2.5]], [[0, "1", 2.5]], [{"rank": 0}], [ENTRY], [[ENTRY]],
    {}, {"code": "DISK_FULL"}, {"code": 5}, {"code": "MASTER_PORT_TAKEN", "port": []}, {"ranks": [ENTRY]}, ENTRY,
]  # fmt: skip
"""What a hostile or unlucky script may put where something else is expected."""
ANYTHING = st.sampled_from(ODD)
LIKE_AN_ENTRY = st.fixed_dictionaries({name: ANYTHING | st.just(value) for name, value in ENTRY.items()})
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
    optional=dict.fromkeys(("rank", "cause", "about", "detail", "tail", "terminated"), ANYTHING),
)


@pytest.fixture(autouse=True, scope="module")
def as_for_people() -> Iterator[None]:
    """Words that a script made up may lack what a text needs; people get a dash there."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(messages, "fault", lambda *_: None)
        yield


def storable_and_tellable(seen: Observation) -> None:
    """As PostgreSQL's JSON and a page need it."""
    json.dumps(seen.to_json(), allow_nan=False)
    assert all(0 <= rank.rank <= 1 << 20 for rank in seen.ranks)
    for cause in filter(None, (seen.cause, seen.waiting)):
        assert storable.params(cause.params) == cause.params
        for lang in messages.LANGUAGES:
            assert messages.text(cause.code, lang, **cause.params)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(LIKE_A_STATUS | ANYTHING, min_size=2, max_size=2),
    st.sampled_from(["RUNNING", "COMPLETED", "FAILED", None]),
)
def test_slurm_tells_something_of_whatever_lies_in_the_shared_folder(found: list[Any], listed: str | None) -> None:
    statuses = {rank: status for rank, one in enumerate(found) if (status := reported.status(one))}
    jobs = [Job(7, 7, "fermi:task-1-1", listed, end=1.0)] if listed else []
    seen = Seen({"nodes": 2, "names": ["a", "b"]}, 7, 7, statuses, None, None)
    storable_and_tellable(slurm.observe(seen, jobs, HANDLE, 1e9))


@settings(max_examples=200, deadline=None)
@given(LIKE_LAST_WORDS | ANYTHING, st.lists(LIKE_AN_ENTRY) | ANYTHING)
def test_kubernetes_tells_something_of_whatever_a_pod_printed_and_left(said: Any, ranks: Any) -> None:
    ended = {"exitCode": 1, "message": json.dumps(said), "finishedAt": "2026-11-21T08:00:00Z"}
    pod = {
        "metadata": {"name": "p", "uid": "u", "annotations": {names.PROCESSES: "2"}},
        "status": {"phase": "Failed", "containerStatuses": [{"name": names.CONTAINER, "state": {"terminated": ended}}]},
    }
    gang = Gang("task-1-1")
    gang.root = {"metadata": {"annotations": {names.NODES: "1", names.SUBMITTED: "yes"}}}
    gang.pods = {"p": pod}
    report = {0: {"ranks": reported.entries(ranks), "drained": True}}
    storable_and_tellable(kubernetes.observe(gang, HANDLE, report))


def test_what_a_runner_writes_is_believed() -> None:
    cause = {"code": "DISK_FULL", "path": "/data", "free": 0, "rank": 1}
    status = {"state": "exited", "ranks": [ENTRY], "asked": "SIGTERM", "asked_at": 3.5, "cause": cause, "boot_id": "x"}
    assert reported.status(status) == {name: value for name, value in status.items() if name != "boot_id"}
    words = {"ranks": [[0, 1, 2.5], [1, None, None]], "asked": [1], "rank": 0, "tail": "Traceback", "terminated": 4.5}
    assert reported.last_words(json.dumps(words)) == words


def test_a_rank_counts_once_and_only_as_a_rank_can_be() -> None:
    wrong = [{"rank": -1}, {"pid": 1 << 40}, {"state": "dancing"}, {"exit_code": 1e400}, {"ended_at": float("nan")}]
    found = [ENTRY, {**ENTRY, "pid": 8}, *({**ENTRY, "rank": 2, **more} for more in wrong), "rank", None]
    assert reported.entries(found) == [ENTRY]


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
def test_nothing_that_a_job_leaves_in_its_folder_stops_who_looks(run: RunDir, name: str, what: str) -> None:
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
    seen = run.look()
    storable_and_tellable(slurm.observe(seen, (), HANDLE, 1e9))
    assert "stolen" not in str(seen)


def test_a_log_that_is_no_file_has_nothing_in_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0.log")
    (tmp_path / "1.log").symlink_to("/etc/hostname")
    assert [logfiles.chunk(tmp_path / f"{rank}.log", 0, 100).data for rank in (0, 1, 2)] == [b""] * 3


def test_what_a_database_cannot_hold_is_in_no_cause() -> None:
    params = {"tail": "a\0b\ud800", "at": float("inf"), "ranks": ["\0", {"\0": float("nan")}]}
    clean = {"tail": "a�b?", "at": None, "ranks": ["�", {"�": None}]}
    assert Cause("JOB_FAILED", params).params == clean
    assert BackendError("ENGINE_REJECTED", **params).params == clean
