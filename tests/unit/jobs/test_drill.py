"""What a drill changes of a job, when its runner kills, and the verdict on what was seen. Pure, but for a folder."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi import messages
from fermi.jobs import drill
from fermi.jobs.drill import CheckpointSaved, DrillEnd, RankKilled, ResumedAttempt, build_report
from fermi.jobs.rank_env import build_job_env
from fermi.jobs.spec import Entrypoint, JobSpec, Node
from fermi.runner.drill import RankKillDrill

NODES = (Node("a", "gn2", gpu_count=2, emulated=True), Node("b", "gn1", gpu_count=4, emulated=True))
JOB = JobSpec(
    "task-x", "pytorch-ddp", NODES, "a", checkpoint_dir="/data/checkpoints/task-x", hyperparameters={"layers": 2}
)

KILLED = RankKilled(
    1, "gn2", 1000.0, CheckpointSaved("/c/20.pt", 7), CheckpointSaved("/c/20.pt", 7, 20), first=1, last=23
)
RESUMED = ResumedAttempt(
    began_at=1001.0, reported_step=20, resume_from="/c/20.pt", first=21, last=22, count=2, stepped_at=1002.5
)
WELL = DrillEnd("succeeded", "COMPLETED", {})
BROKEN = DrillEnd("failed", "RANK_KILLED", {"rank": 0, "node": "gn2", "signal": "SIGKILL"})


def test_a_recipe_saves_soon_and_a_script_keeps_its_interval() -> None:
    short = drill.build_drill_job(replace(JOB, max_restarts=9, drill="on"), "drill-y", "/data/checkpoints/drill-y")
    assert short.hyperparameters["layers"] == 2
    assert short.hyperparameters["checkpointEvery"] == drill.SAVE_EVERY_STEPS < short.hyperparameters["totalSteps"]
    assert (short.max_restarts, short.drill, short.checkpoint_dir) == (1, "off", "/data/checkpoints/drill-y")
    own = replace(JOB, entrypoint=Entrypoint("train.py"))
    assert drill.build_drill_job(own, "drill-y", "/c").hyperparameters == JOB.hyperparameters


def test_only_a_drill_configures_its_runner() -> None:
    assert "FERMI_DRILL" not in build_job_env(JOB)
    assert build_job_env(replace(JOB, rehearses=True))["FERMI_DRILL"] == '{"rank": 1}'


@pytest.mark.parametrize(
    ("killed", "resumed", "ending", "code"),
    [
        (KILLED, RESUMED, WELL, "DRILL_RESUMES"),
        (KILLED, replace(RESUMED, reported_step=None), WELL, "DRILL_RESUMES"),
        (KILLED, replace(RESUMED, reported_step=0, first=1), WELL, "DRILL_FROM_START"),
        (KILLED, replace(RESUMED, reported_step=None, first=1), WELL, "DRILL_FROM_START"),
        (KILLED, replace(RESUMED, reported_step=None, first=10), WELL, "DRILL_RESUMES"),
        (replace(KILLED, first=10), replace(RESUMED, reported_step=None, first=10), WELL, "DRILL_FROM_START"),
        (replace(KILLED, announced=None), replace(RESUMED, reported_step=None, first=1), WELL, "DRILL_NOT_ANNOUNCED"),
        (replace(KILLED, announced=None), replace(RESUMED, reported_step=None), WELL, "DRILL_RESUMES"),
        (KILLED, ResumedAttempt(began_at=1001.0), WELL, "DRILL_STEPS_UNKNOWN"),
        (KILLED, RESUMED, BROKEN, "DRILL_CRASHED_AFTER"),
        (KILLED, None, BROKEN, "DRILL_CRASHED_AFTER"),
        (KILLED, ResumedAttempt(), DrillEnd("failed", "DRILL_NO_STEP", {}), "DRILL_NO_STEP"),
        (None, None, DrillEnd("failed", "DRILL_NO_CHECKPOINT", {}), "DRILL_NO_CHECKPOINT"),
        (None, None, BROKEN, "DRILL_CRASHED_BEFORE"),
        (None, None, WELL, "DRILL_ENDED_EARLY"),
        (KILLED, RESUMED, DrillEnd("stopped", "STOPPED_BY_USER", {}), "DRILL_STOPPED"),
    ],
)  # fmt: skip
def test_the_verdict_names_the_problem(
    killed: RankKilled | None, resumed: ResumedAttempt | None, ending: DrillEnd, code: str
) -> None:
    verdict = build_report(killed, resumed, ending, 15.0)["verdict"]
    assert verdict["code"] == code
    assert (verdict["level"] == drill.PASS) == (code == "DRILL_RESUMES")
    assert messages.MISSING_VALUE not in messages.render_text(code, "en", **{"advice": "", **verdict["params"]})[0]


def test_the_report_shows_lost_time_and_steps() -> None:
    report = build_report(KILLED, RESUMED, WELL, 15.0)
    assert (report["killedStep"], report["resumedStep"], report["stepsLost"]) == (23, 20, 3)
    assert (report["restartSeconds"], report["resumedSeconds"]) == (1.0, 2.5)
    assert report["checkpoint"] == {"path": "/c/20.pt", "size": 7, "step": 20}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("fermi.runner.drill.time", clock)
    return clock


def advance_drill(found: RankKillDrill, clock: Clock, times: int = 1) -> dict[str, Any] | None:
    for _ in range(times):
        clock.now += 1
        about = found.find_due_checkpoint()
    return about


def test_a_rank_is_killed_only_after_a_new_checkpoint_and_a_step(tmp_path: Path, clock: Clock) -> None:
    steps = [5]
    (tmp_path / "old.pt").write_text("before")
    found = RankKillDrill(1, str(tmp_path), lambda: steps[0])
    for name in (".hidden", "new.pt.partial", "status.json", "events.out.tfevents.1"):
        (tmp_path / name).write_text("no checkpoint")
    (tmp_path / "new.pt").write_text("")
    assert advance_drill(found, clock, 5) is None
    (tmp_path / "new.pt").write_text("half")
    assert advance_drill(found, clock) is None
    (tmp_path / "new.pt").write_text("half and half")
    assert advance_drill(found, clock, 2) is None, "complete, and no step since"
    steps[0] = 6
    assert advance_drill(found, clock) == {"path": str(tmp_path / "new.pt"), "size_bytes": 13, "time": clock.now}


def test_without_visible_steps_some_seconds_have_to_pass(tmp_path: Path, clock: Clock) -> None:
    found = RankKillDrill(1, str(tmp_path))
    (tmp_path / "step_20" / "shard").mkdir(parents=True)
    (tmp_path / "step_20" / "shard" / "0.bin").write_text("1234")
    assert advance_drill(found, clock, 4) is None
    about = advance_drill(found, clock)
    assert about
    assert (Path(about["path"]).name, about["size_bytes"]) == ("step_20", 4)


def test_a_checkpoint_is_complete_once_a_newer_one_follows(tmp_path: Path, clock: Clock) -> None:
    found = RankKillDrill(1, str(tmp_path))
    for step in range(9):
        for old in tmp_path.iterdir():
            old.unlink()
        (tmp_path / f"{step}.pt").write_text("weights")
        about = advance_drill(found, clock)
        if about:
            break
    assert about
    assert Path(about["path"]).name == "0.pt"
