"""What every backend tells of a task's code and packages before its ranks begin, and where a node cannot have them."""

from dataclasses import replace
from pathlib import Path

import pytest

from fermi.jobs.causes import CAUSES
from fermi.jobs.code import ARCHIVES_FOLDER
from fermi.jobs.spec import Code, Entrypoint, Handle, JobSpec, Observation, Phase
from fermi.jobs.user_paths import TREE_FOLDER, TREES_FOLDER
from tests import packages
from tests.polling import until

OF_ITS_OWN = pytest.mark.parametrize("engine", ["kubernetes", "agent"], indirect=True)
"""Engines whose nodes each prepare packages themselves, where a test has all on one machine."""


def bringing(engine, files: dict[str, str], gpus: tuple[int, ...] = (1, 1)) -> JobSpec:
    archives = engine.scratch / "data" / ARCHIVES_FOLDER
    snapshot = packages.archive(archives, files)
    seen = Path(engine.backend.mount or engine.scratch / "data", ARCHIVES_FOLDER, snapshot)
    job = engine.job("", gpus, code=Code(snapshot, str(seen)))
    return replace(job, entrypoint=Entrypoint("train.py"))


def preparing(engine, handle: Handle) -> Observation:
    """With the builder's words."""

    def seen() -> Observation | None:
        found = engine.observe(handle)
        assert found.phase not in (Phase.RUNNING, Phase.FAILED), found
        waits = found.waiting
        at_it = waits is not None and waits.code == "CODE_PACKAGES_PREPARING" and waits.params["said"]
        return found if at_it else None

    return until(seen, what="packages are being prepared")


def test_preparation_of_nodes_is_reported_until_ranks_start(engine):
    gate = engine.scratch / "gate"
    handle = engine.submit(bringing(engine, packages.tree(gate)))
    seen = preparing(engine, handle)
    assert seen.phase is Phase.STARTING
    assert seen.waiting.params["file"] == packages.FILE
    assert set(seen.waiting.params["node"].split(", ")) <= {"node-0", "node-1"}
    assert CAUSES[seen.waiting.code].patient, "no deadline ends it"
    assert {rank.state for rank in seen.ranks} == {"waiting"}
    gate.touch()
    ended = engine.until(handle, Phase.SUCCEEDED, Phase.FAILED)
    assert (ended.phase, ended.waiting) == (Phase.SUCCEEDED, None), ended
    engine.until_gone(handle)
    assert [engine.log(handle, rank) for rank in range(2)] == ["trains with toy\n"] * 2


KEEPS = """import os
rank = os.environ["RANK"]
there = sorted(name for name in os.listdir("out")) if os.path.isdir("out") else []
print(open("lr.txt").read().strip(), *there, flush=True)
os.makedirs("out", exist_ok=True)
open(f"out/{os.environ['FERMI_ATTEMPT']}-{rank}", "w").close()
open("lr.txt", "w").write("changed")
"""


def test_files_written_next_to_the_script_exist_in_the_next_attempt_on_all_nodes(engine):
    job = bringing(engine, {"train.py": KEEPS, "lr.txt": "0.1"})
    for attempt in (1, 2):
        handle = engine.submit(replace(job, attempt=attempt))
        ended = engine.until(handle, Phase.SUCCEEDED, Phase.FAILED)
        assert ended.phase is Phase.SUCCEEDED, ended
        engine.until_gone(handle)
    said = [engine.log(handle, rank).split() for rank in range(2)]
    assert all({"1-0", "1-1"} <= set(words) for words in said), "what both nodes wrote in attempt 1"
    assert "0.1" in {words[0] for words in said}, "a file of the snapshot is again what it was"
    written = engine.scratch / "data" / TREES_FOLDER / job.task_id / TREE_FOLDER / "out"
    assert sorted(path.name for path in written.iterdir()) == ["1-0", "1-1", "2-0", "2-1"], "the platform sees it"


def test_preparation_stops_with_the_attempt(engine):
    handle = engine.submit(bringing(engine, packages.tree(engine.scratch / "gate")))
    preparing(engine, handle)
    engine.backend.cancel(handle, 0.0)
    engine.until_gone(handle)


@OF_ITS_OWN
def test_a_failed_package_preparation_names_node_and_error(engine):
    gate = engine.scratch / "gate"
    gate.touch()
    handle = engine.submit(bringing(engine, packages.tree(gate, broken=1), (2, 1)))
    cause = engine.until(handle, Phase.FAILED, Phase.SUCCEEDED).cause
    assert cause is not None
    assert (cause.code, cause.params["node"], cause.params["nodeRank"]) == ("CODE_PACKAGES_FAILED", "node-1", 1)
    assert cause.params["file"] == packages.FILE
    assert "there is no compiler here" in cause.params["why"]


def test_an_archive_missing_on_a_node_is_the_cause(engine):
    job = bringing(engine, {"train.py": "print('never')\n"})
    for path in (engine.scratch / "data" / ARCHIVES_FOLDER / job.code.snapshot).iterdir():
        path.unlink()
    cause = engine.until(engine.submit(job), Phase.FAILED, Phase.SUCCEEDED).cause
    assert cause is not None
    assert cause.code == "CODE_ARCHIVE_MISSING"
    assert cause.params["node"] in ("node-0", "node-1")
    assert job.code.snapshot in cause.params["path"]
