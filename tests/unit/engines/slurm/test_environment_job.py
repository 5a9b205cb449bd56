"""A run of an environment on Slurm: its script, and what is seen of it by what its folder and Slurm say."""

import json
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from fermi import messages
from fermi.engines.environments import EnvironmentSpec
from fermi.engines.slurm import environment_job, environments
from fermi.engines.slurm.driver import SlurmJob
from fermi.engines.slurm.environment_job import RunFiles

NOW = 1_000_000.0
SPEC = EnvironmentSpec(
    "env-1", "it's; $(touch pwned)", "project-1", 2, gpu_count=2, cpu_cores=8, memory_gb=64, host="gn7",
    engine={"constraint": "a100&nvlink"},
)  # fmt: skip
CONNECTION = {"folder": "/shared/my fermi", "partition": {"default": "main", "projects": {"project-1": "notes"}},
              "time_limit": "8:00:00", "account": "ml's", "modules": ["cuda/12.4"]}  # fmt: skip
RUNNING = {"state": "running", "cause": None, "doing": None, "activity": {"at": 5.0, "connections": 1}}
STARTING = {"state": "starting", "doing": {"code": "INSTALLING_PACKAGES", "params": {"line": ""}}}
KILLED = {"state": "exited", "cause": {"code": "KEEPER_LOST", "params": {}}}
GAVE_UP = {"state": "exited", "cause": {"code": "PACKAGES_FAILED", "params": {"output": ""}}}
STOP = {"grace_seconds": 0.0, "kill_at": NOW - 100}


def test_a_job_has_the_requested_resources() -> None:
    rendered = environment_job.render(SPEC, CONNECTION)
    script, submission, keeper = (artifact.content for artifact in rendered.artifacts)
    assert submission["components"] == [
        {
            "job-name": "env-1-2", "comment": "fermi-environment:env-1-2", "no-requeue": True, "time": "8:00:00",
            "signal": "23@90",
            "output": "/shared/my fermi/slurm-environments/env-1/runs/2/slurm.log", "partition": "notes",
            "account": "ml's", "constraint": "a100&nvlink", "nodes": 1, "ntasks": 1, "ntasks-per-node": 1,
            "cpus-per-task": 8, "mem": "64G", "nodelist": "gn7", "gres": "gpu:2",
        }
    ]  # fmt: skip
    assert (keeper["workspace"], keeper["foreground"], keeper["lazy"]) == (
        "/shared/my fermi/slurm-environments/env-1/workspace", True, False,
    )  # fmt: skip
    assert "pwned" not in json.dumps(rendered.to_json())
    assert "module load cuda/12.4" in script
    run = "/shared/my fermi/slurm-environments/env-1/runs/2"
    assert keeper["preparing"]["paths"][f"{run}/modules"] == "r", "what prepares packages is a module of ours"
    assert keeper["confine"]["paths"].get(run) is None
    assert keeper["own"] == "/shared/my fermi/slurm-environments/env-1/home/.fermi/python"
    assert (
        "gres"
        not in environment_job.render(replace(SPEC, emulated=True), CONNECTION).artifacts[1].content["components"][0]
    )
    if program := shutil.which("shellcheck"):
        done = subprocess.run([program, "-"], input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def one(state: str, *flags: str, **more: Any) -> SlurmJob:
    values = {"end": NOW - 60, "nodes": "n1", **more}
    return SlurmJob(values.pop("id", 7), 7, "fermi-environment:env-1-2", state, frozenset(flags), **values)


def make_run_files(status: dict[str, Any] | None = None, **more: Any) -> RunFiles:
    return RunFiles(
        **{"exists": True, "submitted": 7, "begun": 7 if status else 0, "daemon_status": status or {}, **more}
    )


TABLE: list[tuple[str, RunFiles, tuple[SlurmJob, ...], tuple[str, bool | None, str]]] = [
    ("nothing", RunFiles(), (), ("absent", None, "")),
    ("stopped before it was sent", RunFiles(stop=STOP), (), ("absent", False, "")),
    ("taken, and not written down", make_run_files(submitted=0), (one("PENDING", reason="Priority"),),
     ("starting", True, "QUEUE_WAITING")),
    ("a limit", make_run_files(), (one("PENDING", reason="QOSMaxGRESPerUser"),), ("starting", True, "QUEUE_WAITING")),
    ("held", make_run_files(), (one("PENDING", reason="JobHeldUser"),), ("starting", True, "JOB_HELD")),
    ("its keeper begins", make_run_files(), (one("RUNNING"),), ("starting", True, "")),
    ("it installs", make_run_files(STARTING), (one("RUNNING"),), ("starting", True, "INSTALLING_PACKAGES")),
    ("it runs", make_run_files(RUNNING), (one("RUNNING"),), ("running", True, "")),
    ("another of its name", make_run_files(RUNNING), (one("FAILED", id=8), one("RUNNING")), ("running", True, "")),
    ("what is told is torn", make_run_files({"state": "running", "activity": {"kernels": [7]}}), (one("RUNNING"),),
     ("running", True, "")),
    ("what is told is no object", make_run_files({"state": "running", "activity": [7], "doing": 7, "cause": [7]}),
     (one("RUNNING"),), ("running", True, "")),
    ("its service gave up", make_run_files(GAVE_UP), (one("RUNNING"),), ("ended", True, "PACKAGES_FAILED")),
    ("asked by a signal", make_run_files(KILLED), (one("RUNNING"),), ("unknown", True, "")),
    ("at its limit", make_run_files(KILLED), (one("TIMEOUT", "COMPLETING"),), ("ended", True, "TIME_LIMIT")),
    ("its limit", make_run_files(KILLED), (one("TIMEOUT"),), ("ended", False, "TIME_LIMIT")),
    ("preempted", make_run_files(KILLED), (one("PREEMPTED"),), ("ended", False, "PREEMPTED")),
    ("its node is lost", make_run_files(RUNNING), (one("NODE_FAIL"),), ("ended", False, "NODE_LOST")),
    ("out of memory", make_run_files(RUNNING), (one("OUT_OF_MEMORY"),), ("ended", False, "OUT_OF_MEMORY")),
    ("cancelled by somebody", make_run_files(KILLED), (one("CANCELLED"),), ("ended", False, "JOB_CANCELLED")),
    ("stopped", make_run_files({"state": "exited", "cause": None}, stop=STOP), (one("CANCELLED"),), ("ended", False,
    "")), ("stopped in the queue", make_run_files(stop=STOP), (one("CANCELLED"),), ("ended", False, "")),
    ("just over", make_run_files(RUNNING), (one("FAILED", end=NOW - 1),), ("unknown", True, "")),
    ("no Python there", make_run_files(), (one("FAILED"),), ("ended", False, "JOB_FAILED")),
    ("forgotten after its end", make_run_files(GAVE_UP), (), ("ended", False, "PACKAGES_FAILED")),
    ("lost", make_run_files(RUNNING), (), ("ended", None, "JOB_LOST")),
    ("lost, stopped since", make_run_files(RUNNING, stop=STOP), (), ("ended", False, "JOB_LOST")),
    ("an unknown state", make_run_files(RUNNING), (one(""),), ("unknown", True, "")),
]  # fmt: skip


@pytest.mark.parametrize(("found", "jobs", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_an_observation_follows_from_files_and_job_state(
    found: RunFiles, jobs: tuple[SlurmJob, ...], expected: tuple[str, bool | None, str]
) -> None:
    seen = environment_job.build_status(found, jobs, NOW)
    cause = seen.cause or seen.waiting or seen.doing
    assert (seen.phase.value, seen.left, cause.code if cause else "") == expected


def test_unsupported_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = environments.SlurmEnvironmentBackend({"user": "somebody-else", "bin": "/nowhere"})
    found = engine.problems(replace(SPEC, image="training:1"))
    assert [(one.field, one.code) for one in found] == [
        ("image", "SLURM_ENVIRONMENT_IMAGE"),
        ("clusterId", "SLURM_ENVIRONMENT_USER"),
        ("clusterId", "SLURM_COMMAND_MISSING"),
    ]
    for problem in found:
        for language in ("en", "zh"):
            assert messages.has_text(problem.code)
            assert "{" not in "".join(messages.render_text(problem.code, language, **problem.params))
