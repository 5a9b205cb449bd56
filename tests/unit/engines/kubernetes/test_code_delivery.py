"""What pods make ready before their ranks begin: how it is told, read, and judged."""

from dataclasses import replace
from typing import Any

import pytest

from fermi.engines.kubernetes import names, state
from fermi.engines.kubernetes.gang import Gang
from fermi.engines.kubernetes.logs import AttemptFiles, LogSink
from fermi.jobs.code import ARCHIVES_FOLDER
from fermi.jobs.spec import Code, Entrypoint, Handle, Phase
from tests import packages
from tests.polling import until
from tests.unit.engines.kubernetes.conftest import job, observe_one, submit, until_seen

HANDLE = Handle("task-x-1", "task-x", 1, world_size=2)
PREPARING = {"code": "CODE_PACKAGES_PREPARING", "file": "requirements.txt", "said": "Collecting numpy"}
WAITING, RUNNING = ([{"rank": 0, "state": one}] for one in ("waiting", "running"))
BEGUN = {"ranks": RUNNING, "doing": None}


def gang(*, brings: bool = True) -> Gang:
    """Two pods that run."""
    found = Gang("task-x-1")
    marks = {names.NODES: "2", names.SUBMITTED: "true", **({names.CODE: "5b0c41e0a3f2"} if brings else {})}
    found.root = {"metadata": {"annotations": marks}}
    for rank in range(2):
        about = {"labels": {names.NODE_RANK: str(rank)}, "annotations": {names.ENVIRONMENT: f"dev-{rank}"}}
        found.pods[f"pod-{rank}"] = {
            "metadata": {"name": f"pod-{rank}", "uid": f"u{rank}", **about}, "status": {"phase": "Running"},
        }  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("reports", "phase", "code", "node"),
    [
        ({}, Phase.STARTING, "CODE_UNPACKING", "dev-0, dev-1"),
        ({0: {"ranks": WAITING, "doing": PREPARING}}, Phase.STARTING, "CODE_PACKAGES_PREPARING", "dev-0"),
        ({0: BEGUN}, Phase.STARTING, "CODE_UNPACKING", "dev-1"),
        ({0: BEGUN, 1: {"ranks": WAITING, "doing": PREPARING}}, Phase.STARTING, "CODE_PACKAGES_PREPARING", "dev-1"),
        ({0: BEGUN, 1: BEGUN}, Phase.RUNNING, None, None),
        ({0: {"silence": "no route to host"}}, Phase.RUNNING, "LOG_UNAVAILABLE", "dev-0"),
    ],
)
def test_an_attempt_with_code_runs_once_all_its_ranks_do(reports, phase, code, node) -> None:
    """A log that nobody hands out ends nothing."""
    seen = state.build_observation(gang(), HANDLE, reports)
    waits = seen.waiting
    assert (seen.phase, waits and waits.code, waits and waits.params["node"]) == (phase, code, node)


def test_an_attempt_without_code_runs_with_its_pods() -> None:
    assert state.build_observation(gang(brings=False), HANDLE, {}).phase is Phase.RUNNING


def lines(*said: str) -> list[bytes]:
    return [b"2026-11-21T08:00:0%d.1Z %b" % (number, text.encode()) for number, text in enumerate(said)]


@pytest.mark.parametrize("hostile", ["5", "[]", '{"code": 7}', '"CODE_UNPACKING"'])
def test_preparation_lines_are_removed_from_the_log_until_ranks_start(tmp_path, hostile: str) -> None:
    files = AttemptFiles(tmp_path, "task-x", 1)
    files.folder.mkdir(parents=True)
    sink = LogSink(files, 0, range(1))

    def told(*said: str) -> Any:
        sink.write_lines(lines(*said))
        return files.report(0)["doing"]

    def waiting(doing: str) -> str:
        return f'@{{"ranks": [{{"rank": 0, "state": "waiting"}}], "doing": {doing}}}'

    ready = '{"code": "CODE_PACKAGES_PREPARING", "file": "requirements.txt", "said": "Collecting numpy"}'
    assert told(waiting(ready)) == PREPARING
    assert told(waiting(hostile)) is None
    told(waiting(ready))
    assert told('@{"ranks": [{"rank": 0, "state": "running"}]}', "0:0:it trains") is None
    assert files.rank(0).read_bytes() == b"it trains\n"


def test_an_attempt_with_code_is_seen_to_run_without_a_watcher(lab) -> None:
    """Whoever asks for it has its pods' logs read."""
    lab.cluster.add_claim("fermi-data", lab.data_dir)
    volume = {"persistentVolumeClaim": {"claimName": "fermi-data"}}
    backend = lab.backend(data={"mountPath": "/fermi-data", "volume": volume})
    snapshot = packages.archive(lab.data_dir / ARCHIVES_FOLDER, {"train.py": "import time; time.sleep(600)"})
    code = Code(snapshot, f"/fermi-data/{ARCHIVES_FOLDER}/{snapshot}")
    one = submit(backend, replace(job(1), code=code, entrypoint=Entrypoint("train.py")))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    until(lambda: (backend.cancel(one, 0.0), observe_one(backend, one).left is False)[1], what="gone")
