"""Restart drills: the job runs for a short while with checkpoints of its own; a rank is killed, and the restart is
measured. Pure.

    build_drill_job   job ─▶ the job of the drill
    choose_victim     the rank that is killed (by the rank's runner: `fermi.runner.drill`)
    build_report      what was observed ─▶ report: whether it resumes, at what cost, or why not
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from fermi.jobs import recipes
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import JobSpec

DRILL = "drill"
PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
SAVE_EVERY_STEPS, MIN_TOTAL_STEPS = 5, 10_000
GRACE_SECONDS = 5.0


def build_drill_job(job: JobSpec, key: str, checkpoint_dir: str) -> JobSpec:
    """Return the drill's job. It has one restart, which the drill itself makes necessary. A recipe saves soon and runs
    for longer than the drill needs; a user's own script keeps its cadence."""
    return replace(
        job, task_id=key, checkpoint_dir=checkpoint_dir, hyperparameters=_shorten_hyperparameters(job),
        grace_seconds=GRACE_SECONDS, max_restarts=1, spares=(), preflight="off", drill="off", rehearses=True,
        on_hang="stop", on_bad_loss="report", attempt=0,
    )  # fmt: skip


def _shorten_hyperparameters(job: JobSpec) -> dict[str, Any]:
    given = dict(job.hyperparameters)
    known = {} if job.entrypoint else recipes.RECIPES.get(job.recipe, {})
    if "checkpointEvery" in known:
        steps = given.get("totalSteps") or 0
        given |= {
            "checkpointEvery": SAVE_EVERY_STEPS,
            "logEvery": 1,
            "evalEvery": 0,
            "totalSteps": max(steps, MIN_TOTAL_STEPS),
        }
    return given


def choose_victim(job: JobSpec) -> int:
    """Return the rank to kill: the last one on the master's node, from where the checkpoints of rank 0 can be seen even
    if each node has a disk of its own."""
    return place_nodes(job.nodes, job.master)[0].ranks[-1]


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint: path, size in bytes, optimizer step."""

    path: str
    size: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class RankKilled:
    """The end of the first attempt, by the drill. `file`: the checkpoint that its runner saw; `announced`: the newest
    one that the script announced. `first`, `last`: the steps that it printed. Times in unix seconds."""

    rank: int
    node: str
    at: float
    file: CheckpointSaved
    announced: CheckpointSaved | None = None
    first: int | None = None
    last: int | None = None

    @property
    def saved(self) -> CheckpointSaved:
        return self.announced or self.file

    @property
    def about(self) -> dict[str, Any]:
        """The parameters of its texts."""
        return {"rank": self.rank, "node": self.node, "path": self.saved.path}


@dataclass(frozen=True, slots=True)
class ResumedAttempt:
    """The attempt after it. `reported_step`: the step that the script says it resumed from; `resume_from`: from where
    it was to resume.
    `first`, `last`: the steps that it printed; `stepped_at`: when it printed the first one beyond the resumed step."""

    began_at: float | None = None
    reported_step: int | None = None
    resume_from: str = ""
    first: int | None = None
    last: int | None = None
    count: int = 0
    stepped_at: float | None = None

    @property
    def step(self) -> int | None:
        """The step that it resumed from, as it says or as its first step shows."""
        return self.reported_step if self.reported_step is not None or self.first is None else max(self.first - 1, 0)

    @property
    def advanced(self) -> bool:
        """Whether it got beyond the resumed step, or, where that is unknown, from one step to another."""
        if self.reported_step is not None:
            return self.last is not None and self.last > self.reported_step
        return self.count > 1


@dataclass(frozen=True, slots=True)
class DrillEnd:
    """How the drill's task ended: its state, and its reason with what fills the text."""

    state: str
    reason: str = ""
    params: dict[str, Any] | None = None


def build_report(
    killed: RankKilled | None, resumed: ResumedAttempt | None, ending: DrillEnd, minutes: float
) -> dict[str, Any]:
    """Return the drill's report as JSON, as it is stored. `minutes`: how long it waited for a checkpoint and for the
    resumed step."""
    level, code, params = _decide_verdict(killed, resumed, ending, minutes)
    step, last = resumed.step if resumed else None, killed.last if killed else None
    died = killed.at if killed else None
    return {
        "verdict": {"level": level, "code": code, "params": params},
        "rank": killed and killed.rank,
        "node": killed and killed.node,
        "checkpoint": asdict(killed.saved) if killed else None,
        "killedStep": last,
        "resumedStep": step,
        "stepsLost": max(last - step, 0) if last is not None and step is not None else None,
        "restartSeconds": _seconds_between(died, resumed.began_at) if resumed else None,
        "resumedSeconds": _seconds_between(died, resumed.stepped_at) if resumed else None,
    }


def _seconds_between(start: float | None, end: float | None) -> float | None:
    return round(max(end - start, 0.0), 1) if start is not None and end is not None else None


def _decide_verdict(
    killed: RankKilled | None, resumed: ResumedAttempt | None, ending: DrillEnd, minutes: float
) -> tuple[str, str, dict[str, Any]]:
    why = {**(ending.params or {}), "cause": ending.reason}
    if ending.state == "stopped":
        return UNKNOWN, "DRILL_STOPPED", {}
    if killed is None:
        if ending.state == "succeeded":
            return FAIL, "DRILL_ENDED_EARLY", {}
        if ending.reason == "DRILL_NO_CHECKPOINT":
            return FAIL, "DRILL_NO_CHECKPOINT", {"minutes": f"{minutes:g}"}
        return FAIL, "DRILL_CRASHED_BEFORE", why
    about = killed.about
    if resumed is None or ending.state != "succeeded":
        if ending.reason == "DRILL_NO_STEP":
            return FAIL, "DRILL_NO_STEP", {**about, "minutes": f"{minutes:g}"}
        return FAIL, "DRILL_CRASHED_AFTER", {**about, **why}
    step, first = resumed.step, killed.first
    if step is None:
        return UNKNOWN, "DRILL_STEPS_UNKNOWN", about
    if step == 0 or (
        resumed.reported_step is None and first is not None and resumed.first is not None and resumed.first <= first
    ):
        return FAIL, "DRILL_NOT_ANNOUNCED" if killed.announced is None else "DRILL_FROM_START", about
    lost = max(killed.last - step, 0) if killed.last is not None else None
    seconds = _seconds_between(killed.at, resumed.stepped_at)
    return PASS, "DRILL_RESUMES", {**about, "killed": killed.last, "step": step, "lost": lost, "seconds": seconds}
