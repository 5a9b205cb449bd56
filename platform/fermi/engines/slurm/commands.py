"""sbatch, squeue, scancel and scontrol, where there is no slurmrestd. They print the same JSON (`--json`, from Slurm
21.08 on)."""

import getpass
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fermi.engines.slurm import driver
from fermi.engines.slurm.driver import SlurmJob, SlurmMachine, SlurmSubmission
from fermi.engines.slurm.rejections import UNKNOWN_JOB_ERRORS, SlurmRejectedError, build_rejection
from fermi.jobs.errors import BackendError

TIMEOUT_SECONDS = 60.0
UNREACHABLE_PATTERN = re.compile(r"(?i)unable to contact|connection refused|connect failure|timed out|authentication")


class SlurmCommands:
    """Driver that runs Slurm's commands."""

    max_single_queries = 0  # `squeue --json` lists all, whatever it is asked for

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self._bin, self._conf = connection.get("bin"), connection.get("conf")
        self.user = str(connection.get("user") or getpass.getuser())

    def version(self) -> str:
        said = self._run("scontrol", "ping")
        if " is UP" not in said and "(UP)" not in said:
            raise BackendError("SLURM_UNREACHABLE", why=said.strip(), where="scontrol ping")
        return self._run("sinfo", "--version").split()[-1]

    def jobs(self) -> list[SlurmJob]:
        return [driver.parse_job(row) for row in self._json("squeue", "--json", "--states=all")["jobs"]]

    def job(self, job_id: int) -> list[SlurmJob]:
        return [one for one in self.jobs() if job_id in (one.id, one.leader)]

    def submit(self, submission: SlurmSubmission) -> int:
        """Submit the script that already lies in its folder, with an environment that has nothing of ours in it; return
        the job's id."""
        said = self._run("sbatch", "--parsable", "job.sh", folder=submission.folder, env=submission.environment)
        return int(said.strip().split(";")[0])

    def cancel(self, job_id: int) -> None:
        try:
            self._run("scancel", str(job_id))
        except SlurmRejectedError as refused:
            if refused.number not in UNKNOWN_JOB_ERRORS:
                raise

    def partitions(self) -> dict[str, bool]:
        lines = self._run("sinfo", "--noheader", "--format=%R|%a").splitlines()
        return {name: state == "up" for name, _, state in (line.partition("|") for line in lines)}

    def machines(self) -> list[SlurmMachine]:
        return [driver.parse_machine(row) for row in self._json("sinfo", "--json")["nodes"]]

    def program(self, name: str) -> str:
        """Return the path of a command. Raise BackendError (SLURM_COMMAND_MISSING)."""
        program = str(Path(self._bin) / name) if self._bin else shutil.which(name)
        if not program or not os.access(program, os.X_OK):
            raise BackendError("SLURM_COMMAND_MISSING", permanent=True, command=name)
        return program

    def step(self, job: int) -> list[str]:
        """Return the command of a step with a stream to one program on a node of a running job: `--overlap` shares what
        the job has, `--unbuffered` passes bytes on as they come and not by lines."""
        return [
            self.program("srun"), f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", "--unbuffered",
            "--quiet", "--mpi=none", "--input=all", "--chdir=/",
        ]  # fmt: skip

    def steps(self) -> dict[str, list[str]]:
        """Return all running steps that we may see: by name, their numbers (`7.0`)."""
        found: dict[str, list[str]] = {}
        for line in self._run("squeue", "--steps", "--noheader", "--format=%i|%j").splitlines():
            number, _, name = line.strip().partition("|")
            found.setdefault(name, []).append(number)
        return found

    def cancel_step(self, number: str) -> None:
        """Cancel a step; one that is over is left alone."""
        try:
            self._run("scancel", number)
        except SlurmRejectedError as refused:
            if refused.number not in UNKNOWN_JOB_ERRORS:
                raise

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables of the commands."""
        found = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(Path.home()), **(more or {})}
        if conf := self._conf or os.environ.get("SLURM_CONF"):
            found["SLURM_CONF"] = str(conf)
        return found

    def _json(self, *words: str) -> dict[str, Any]:
        said = self._run(*words)
        try:
            found = json.loads(said)
        except ValueError as error:
            raise BackendError("SLURM_UNREACHABLE", why=said[:200], where=" ".join(words)) from error
        if errors := found.get("errors"):  # even then it may exit with 0
            raise BackendError("SLURM_UNREACHABLE", why=str(errors[0].get("description")), where=" ".join(words))
        return dict(found)

    def _run(self, *words: str, folder: str | None = None, env: Mapping[str, str] | None = None) -> str:
        program = self.program(words[0])
        try:
            done = subprocess.run(
                [program, *words[1:]], capture_output=True, encoding="utf-8", errors="replace", cwd=folder,
                env=self.variables(env), timeout=TIMEOUT_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BackendError("SLURM_UNREACHABLE", why=str(error), where=words[0]) from error
        if done.returncode == 0:
            return done.stdout
        why = (done.stderr.strip() or done.stdout.strip())[-500:]
        if UNREACHABLE_PATTERN.search(why):
            raise BackendError("SLURM_UNREACHABLE", why=why, where=words[0])
        raise build_rejection(0, why)
