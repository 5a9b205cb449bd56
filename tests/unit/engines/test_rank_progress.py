"""How ranks get on, and what is wrong with them, on its way from a node's runner to whoever asks: on every engine."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fermi import export
from fermi.agent.runs import RankRun
from fermi.engines import agent
from fermi.engines.agent.engine import AgentBackend
from fermi.engines.agent.store import AttemptReports, RankReport
from fermi.engines.kubernetes.logs import AttemptFiles, LogSink
from fermi.engines.local import LocalBackend
from fermi.engines.slurm.engine import SlurmBackend
from fermi.jobs.spec import Handle, RankProgress
from fermi.planning import plugins
from fermi.runner import foreground
from fermi.runner.files import build_first_status
from tests import goldens
from tests.fakes.workers import MemoryStore

HANDLE = Handle("task-x-1", "task-x", 1, 3)
SEEN = [
    RankProgress(0, 9.0, "running", 41, 8.5, 0.2, 900, 0.25, 8.0, 1 << 30, 1 << 28, 1.5),
    RankProgress(1, 9.0, "evaluating"),
    RankProgress(2, 9.5),
]
SAID = [asdict(seen) for seen in SEEN]
BY_RANK = dict(enumerate(SEEN))
ERROR = {"type": "ValueError", "message": "bad", "file": "train.py", "line": 88, "function": "f", "at": 9.0, "step": 4}


def iter_watch_options(content: Any, found: dict[str, Any]) -> Iterator[Any]:
    """Wherever in what is sent a runner is told of its ranks."""
    match content:
        case dict():
            if "stop_signal" in content:
                yield {name: content[name] for name in found}
            for value in content.values():
                yield from iter_watch_options(value, found)
        case list():
            for value in content:
                yield from iter_watch_options(value, found)
        case str() if content.startswith("{") and '"stop_signal"' in content:
            yield from iter_watch_options(json.loads(content), found)


@pytest.mark.parametrize("engine", plugins.BACKENDS)
@pytest.mark.parametrize("chosen", [{}, {"pulse": False, "hang_seconds": 90.0}])
def test_every_engines_runner_gets_its_watch_options(engine: str, chosen: dict[str, Any]) -> None:
    rendered = goldens.on_engine(goldens.job("env-001", "env-003", **chosen), engine)
    expected = {"pulse": True, "hang_seconds": None} | chosen
    found = list(iter_watch_options([artifact.content for artifact in rendered.artifacts], expected))
    assert found
    assert all(one == expected for one in found)


def test_a_start_script_has_watch_options() -> None:
    job = goldens.job("env-001", pulse=False, hang_seconds=90.0)
    script = export.render_files(job, "shell", "en")["start-node-0.sh"]
    assert "--no-pulse" in script
    assert "--hang-seconds 90" in script
    words = ["--port", "1", "--no-pulse", "--hang-seconds", "90", "--rank", "0", "--", "true"]
    args = foreground.parse_arguments(words)
    assert (args.pulse, args.hang_seconds) == (False, 90.0)


def test_the_local_engine_reads_progress_next_to_the_status(tmp_path: Path) -> None:
    engine = LocalBackend({"data_dir": str(tmp_path), "warm": False})
    assert engine.pulses(HANDLE) == {}
    written(tmp_path / "runs" / HANDLE.name)
    assert engine.pulses(HANDLE) == BY_RANK
    assert [spec.name for spec in engine._specs(tmp_path / "runs" / HANDLE.name)] == ["node-0.json"]


def test_slurm_reads_progress_from_the_shared_folder(tmp_path: Path) -> None:
    engine = SlurmBackend({"data_dir": str(tmp_path)})
    written(tmp_path / "runs" / HANDLE.name)
    (tmp_path / "runs" / HANDLE.name / "node-2.pulse.json").symlink_to("/dev/zero")
    assert engine.pulses(HANDLE) == BY_RANK


def written(folder: Path) -> None:
    """By two runners; a third one's is torn."""
    folder.mkdir(parents=True)
    (folder / "node-0.json").write_text("{}")
    (folder / "node-0.pulse.json").write_text(json.dumps({"pulse": SAID[:2]}))
    (folder / "node-1.pulse.json").write_text(json.dumps({"pulse": SAID[2:]}))
    (folder / "node-3.pulse.json").write_text('{"pulse": [{"ra')


def test_a_pods_log_has_rank_output_and_progress(tmp_path: Path) -> None:
    files = AttemptFiles(tmp_path, "task-x", 1)
    files.folder.mkdir(parents=True)
    sink = LogSink(files, 0, range(2))
    entry = {"rank": 0, "state": "exited", "pid": 7, "exit_code": 1, "ended_at": 9.5, "error": ERROR}
    sink.write_lines(line({"ranks": [entry]}, {"pulse": SAID}, {"pulse": [{**SAID[0], "step": 42}, SAID[1]]}))
    error = {**ERROR, "refused": None}
    assert files.report(0)["ranks"] == [{**entry, "error": error, "asked": False, "still_since": None}]
    sink.save()
    LogSink(files, 1, range(2, 3)).write_lines(line({"ranks": []}, {"pulse": [*SAID, "no pulse"]}))
    (files.node(1, "lock")).touch()
    sink = LogSink(files, 1, range(2, 3))
    sink.write_lines(line({"pulse": SAID}))
    sink.save()
    assert {rank: seen.step for rank, seen in files.pulses().items()} == {0: 42, 1: None, 2: None}


def line(*said: Any) -> list[bytes]:
    return [b"2026-11-21T08:00:00.%dZ @%b" % (number, json.dumps(one).encode()) for number, one in enumerate(said)]


def test_a_worker_reports_progress_and_end_of_its_rank(tmp_path: Path) -> None:
    folder = tmp_path / HANDLE.name
    folder.mkdir()
    (folder / "rank.json").write_text(json.dumps({"name": HANDLE.name, "ranks": [{"rank": 1, "log": "/none"}]}))
    run = RankRun(folder)
    run.update_state()
    assert run.process["error"] is run.process["stalled"] is run.process["kill"] is run.pulse is None
    (folder / "rank.pulse.json").write_text(json.dumps({"pulse": [SAID[1]]}))
    run.alive = True
    assert run.pulse == SAID[1]
    entry = {"rank": 1, "pid": 7, "state": "exited", "exit_code": 1, "ended_at": 9.5, "error": ERROR, "last_step": 80}
    (folder / "rank.status.json").write_text(
        json.dumps({**build_first_status(HANDLE.name, 0, "exited"), "ranks": [entry]})
    )
    run.update_state()
    assert (run.process["error"], run.process["course"], run.pulse) == (ERROR, {"last_step": 80}, None)


def test_worker_reports_become_rank_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    monkeypatch.setattr(agent.engine, "store", store)
    monkeypatch.setattr(store, "pulses", lambda name: [*SAID, {"rank": 9, "step": 1}])
    report = RankReport("gn6-0", 0, 0, "gn6", state="exited", exit_code=1, left=False, error=ERROR,
                    kill={"by": "memory"}, course={"last_step": 80, "began_at": 3.5})  # fmt: skip
    monkeypatch.setattr(store, "attempts", lambda names: {HANDLE.name: AttemptReports(False, [report])})
    engine = AgentBackend({"data_dir": str(tmp_path)})
    assert engine.pulses(HANDLE) == BY_RANK
    (rank,) = engine.observe([HANDLE])[HANDLE.name].ranks
    assert (rank.error, rank.stalled, rank.kill) == (ERROR, None, {"by": "memory"})
    assert (rank.last_step, rank.began_at) == (80, 3.5)
