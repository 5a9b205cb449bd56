"""By hand on a real Slurm: the rendered job of uneven nodes, and the batch script that `fermi launch` writes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fermi.jobs.spec import Entrypoint, JobSpec
from fermi.runner.record_frames import strip_frames
from tests.exported_scripts import ROOT, fermi, lines_of, nodes, write
from tests.platform_process import free_port
from tests.polling import until
from tests.slurm import Slurm, started

pytestmark = pytest.mark.e2e

SHOW = """
import json, os
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
print(json.dumps({name: int(os.environ[name]) for name in names} | {"text": os.environ.get("TEXT", "")}))
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with started() as lab:
        yield lab


def ended(slurm: Slurm, job: str) -> str:
    """The state in which a job ended."""

    def state() -> str:
        shown = slurm.command("scontrol", "--oneliner", "show", "job", job)
        found = {word.partition("JobState=")[2] for word in shown.split() if word.startswith("JobState=")}
        return "" if found & {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"} else " ".join(found)

    return until(state, seconds=120, what=f"job {job} is over")


def test_a_rendered_job_of_uneven_nodes_has_the_plans_ranks(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    text = 'it\'s $HOME "and"\nmore'
    spec = JobSpec("task-one", "pytorch-ddp", nodes(1, 2), "env-0", entrypoint=Entrypoint(str(tmp_path / "show.py")),
                   env={"TEXT": text}, attempt=1, master_port=free_port())  # fmt: skip
    place = tmp_path / "job"
    write(place, spec, "slurm", folder=str(place), python=sys.executable, workspace=str(tmp_path))
    done = subprocess.run(["bash", place / "submit.sh"], env=slurm.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = place / "runs" / "task-one-hand-1"
    assert ended(slurm, done.stdout.split()[-1]) == "COMPLETED", (run / "slurm.log").read_text()
    logs = place / "logs" / "task-one-hand" / "1"
    seen = [json.loads(strip_frames((logs / f"{rank}.log").read_bytes())) for rank in range(3)]
    assert seen == [
        {"RANK": 0, "WORLD_SIZE": 3, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "NODE_RANK": 0, "text": text},
        {"RANK": 1, "WORLD_SIZE": 3, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2, "NODE_RANK": 1, "text": text},
        {"RANK": 2, "WORLD_SIZE": 3, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "NODE_RANK": 1, "text": text},
    ]


@pytest.mark.parametrize("one_task_per_node", [False, True], ids=["a task per rank", "a task per node"])
def test_a_created_batch_script_gives_every_task_its_rank(
    slurm: Slurm, tmp_path: Path, one_task_per_node: bool
) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    command = tmp_path / "fermi"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "platform"} exec {sys.executable} -m fermi.cli "$@"\n')
    command.chmod(0o755)
    launched = [sys.executable, str(tmp_path / "show.py")]
    tasks = 2
    if one_task_per_node:
        tasks, launched = 1, [str(command), "launch", "--nproc-per-node", "2", "--", *launched]
    shape = ["--num-nodes", "2", "--nproc-per-node", str(tasks), "--gpus-per-node", "0"]
    written = fermi("launch", "--mode", "create_slurm", *shape, "--", *launched)
    here = {**slurm.env, "PYTHONPATH": str(ROOT / "platform")}
    subprocess.run(written, cwd=tmp_path, env=here, check=True, capture_output=True)
    script = tmp_path / "slurm_scripts" / "run_slurm.sh"
    if one_task_per_node:  # as docs/manual-launch.md has it for a job that is there already
        text = script.read_text()
        begin = text.index("exec srun")
        script.write_text(text[:begin] + f"exec srun --ntasks-per-node=1 {' '.join(launched)}\n")
    log = tmp_path / "job.out"
    # the nodes of this Slurm have no names that resolve
    env = {**slurm.env, "FERMI": str(command), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    sent = subprocess.run(["sbatch", "--parsable", f"--output={log}", script], cwd=tmp_path, env=env,
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert ended(slurm, sent.stdout.strip()) == "COMPLETED", log.read_text()
    seen = [json.loads(lines_of(log.read_text(), rank)[0]) for rank in range(4)]
    assert [(one["RANK"], one["LOCAL_RANK"], one["NODE_RANK"]) for one in seen] == [
        (0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)
    ]  # fmt: skip
    assert {(one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]) for one in seen} == {(4, 2)}
