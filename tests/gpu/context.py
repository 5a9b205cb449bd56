"""What a check is given."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.gpu.check import SkippedError
from tests.gpu.machine import Machine
from tests.gpu.platform import ENVIRONMENT, FINAL, Platform, attached

JOBS = Path(__file__).with_name("jobs")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that has ended. `code`: its exit code, negative: the signal; None: it was ended at its time limit."""

    code: int | None
    seconds: float
    output: str

    def json(self, key: str) -> Row:
        """Returns the last line of output that is a JSON object with the key. Raises AssertionError without one."""
        for line in reversed(self.output.splitlines()):
            if line.startswith("{") and f'"{key}"' in line:
                with suppress(ValueError):
                    found: Row = json.loads(line)
                    return found
        raise AssertionError(f"no line with {key!r} in:\n{self.output[-3000:]}")


class Context:
    """Of one check. What fails is collected by `expect`, so that one wrong figure does not hide the others."""

    def __init__(self, name: str, work: Path, machine: Machine, port: int) -> None:
        self.name, self.work, self.machine, self._port = name, work, machine, port
        self.folder = work / "checks" / name
        """Of this check alone; ranks of the platform cannot read it (see `workspace`)."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.figures: list[Row] = []
        self.failures: list[str] = []
        self.notes: list[str] = []

    # What it found ------------------------------------------------------------------------------------------------

    def figure(self, name: str, value: float | str, unit: str = "", *, most: float | None = None,
               least: float | None = None) -> None:  # fmt: skip
        """Notes a figure for the table; outside of its bounds the check fails."""
        row: Row = {"name": name, "value": round(value, 5) if isinstance(value, float) else value, "unit": unit}
        row |= {"most": most} if most is not None else {}
        row |= {"least": least} if least is not None else {}
        self.figures.append(row)
        print(f"figure | {name}: {row['value']} {unit}", flush=True)
        if isinstance(value, (int, float)):
            if most is not None and value > most:
                self.fail(f"{name} is {value:.5g} {unit}, at most {most:g} was expected")
            if least is not None and value < least:
                self.fail(f"{name} is {value:.5g} {unit}, at least {least:g} was expected")

    def expect(self, holds: object, text: str) -> bool:
        """Notes a failure with the text unless it holds; the check goes on."""
        if not holds:
            self.fail(text)
        return bool(holds)

    def fail(self, text: str) -> None:
        self.failures.append(text)
        print(f"FAILED | {text}", flush=True)

    def note(self, text: str) -> None:
        """For the table, beside the result: what was left out, or seen on the way."""
        self.notes.append(text)
        print(f"note   | {text}", flush=True)

    def skip(self, why: str) -> None:
        raise SkippedError(why)

    # Programs without the platform --------------------------------------------------------------------------------

    def run(self, *command: str | Path, seconds: float = 120, env: Mapping[str, str | None] | None = None,
            cwd: Path | None = None) -> Ran:  # fmt: skip
        """Runs a program to its end and returns what it printed (both streams). `env` is added to ours; None removes.
        At the time limit the program and its children are ended."""
        changed = {**os.environ, **(env or {})}
        clean = {name: value for name, value in changed.items() if value is not None}
        print(f"run    | {' '.join(map(str, command))[:600]}", flush=True)
        began, out = time.monotonic(), self.folder / f"run-{time.monotonic_ns()}.log"
        with out.open("wb") as output:
            process = subprocess.Popen(
                [str(word) for word in command], env=clean, cwd=cwd or self.folder, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        took, text = time.monotonic() - began, out.read_text(errors="replace")
        print(f"ran    | code {code} after {took:.2f} s\n{text[-6000:]}", flush=True)
        return Ran(code, took, text)

    def python(self, *words: str | Path, **more: Any) -> Ran:
        """Runs this Python; see `run`."""
        return self.run(sys.executable, *words, **more)

    def torchrun(self, script: str | Path, *words: str, ranks: int = 1, **more: Any) -> Ran:
        """Runs the script as `torchrun --standalone` does, without the platform; see `run`."""
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        return self.python(*launcher, script, *words, **more)

    # The platform -------------------------------------------------------------------------------------------------

    @cached_property
    def platform(self) -> Platform:
        """Raises SkippedError where it did not start."""
        if not self._port:
            raise SkippedError("the platform did not start (see its log)")
        return attached(self.work / "data", self._port)

    @cached_property
    def workspace(self) -> Path:
        """A folder that tasks may read and write."""
        folder = self.platform.data / "workspace" / f"gpu-check-{self.name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        return folder

    def job(self, name: str) -> Path:
        """Returns a copy of a script of `jobs/` in the workspace."""
        path = self.workspace / name
        shutil.copy(JOBS / name, path)
        path.chmod(0o644)
        return path

    def start(self, script: str | Path | None = None, *args: str, ranks: int = 1, framework: str = "ddp",
              env: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None,
              config: Mapping[str, Any] | None = None, registered: bool = False, **changes: Any) -> str:  # fmt: skip
        """Starts a task of the local engine and returns its id: one rank on this machine's card, or several that share
        it. `script`: of the workspace; None trains the platform's own (with `hyperparameters`). Each task has an
        environment of its own, because one has one task at a time; `registered`: it has that which the platform has
        registered for this machine."""
        chosen, more = ENVIRONMENT, dict(env or {})
        if not registered:
            name = f"{self.name}-{next(_NUMBERS)}"
            chosen = self.platform.environment(name, ranks, emulated=not self.machine.cuda)
            more = {**({"CUDA_VISIBLE_DEVICES": "0"} if ranks > 1 and self.machine.cuda else {}), **more}
        body: Row = {
            "taskName": self.name[:40], "maxRestarts": 0, "graceSeconds": 5,
            "distributedConfig": {
                "enabled": True, "nodeIds": [chosen], "masterNode": chosen, "framework": framework,
                "options": dict(options or {}), **(config or {}),
            },
            **({"env": more} if more else {}),
            **({"entrypoint": {"script": str(script), "args": list(args)}} if script else {}), **changes,
        }  # fmt: skip
        answer = self.platform.api.post("/training-tasks", json={**self.platform.request([chosen]), **body})
        assert answer.status_code == 201, answer.text
        task_id: str = answer.json()["data"]["taskId"]
        print(f"task   | {task_id} {script or framework}", flush=True)
        return task_id

    def finish(self, task_id: str, seconds: float = 120, meanwhile: Callable[[], None] = lambda: None) -> Row:
        """Returns the task once it has ended, stopped at the time limit; prints what it logged. `meanwhile` is called
        again and again until then."""
        deadline = time.monotonic() + seconds
        while (task := self.platform.task(task_id))["status"] not in FINAL:
            if time.monotonic() > deadline:
                self.fail(f"{task_id} was still {task['status']} after {seconds:.0f} s: {task['reason']}")
                self.platform.api.post(f"/training-tasks/{task_id}/stop")
                return self.platform.until_final(task_id, 20)
            meanwhile()
            time.sleep(0.1)
        print(f"task   | {task_id}: {task['status']} {task['reason']}\n{self.log(task_id)[-5000:]}", flush=True)
        return task

    def train(self, script: str | Path | None = None, *args: str, seconds: float = 120, **more: Any) -> Row:
        """Starts a task and returns it at its end; a failure unless it succeeded."""
        task = self.finish(self.start(script, *args, **more), seconds)
        self.expect(task["status"] == "succeeded", f"{task['taskId']}: {task['status']}: {task['reason']}")
        return task

    def log(self, task_id: str, rank: int = 0) -> str:
        return self.platform.log(task_id, rank)

    def printed(self, task_id: str, key: str, rank: int = 0) -> Row:
        """Returns the last JSON object with the key that a rank printed."""
        return Ran(0, 0.0, self.log(task_id, rank)).json(key)

    def pid(self, task_id: str, rank: int = 0) -> int:
        return self.platform.rank_pid(task_id, rank)

    # The card -----------------------------------------------------------------------------------------------------

    def smi(self, *fields: str, of: str = "gpu") -> list[dict[str, str]]:
        """Returns what nvidia-smi prints, a row for each card (or process), by field; the independent witness of what
        the platform tells. Raises AssertionError where it fails."""
        command = ["nvidia-smi", f"--query-{of}={','.join(fields)}", "--format=csv,noheader,nounits"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, f"nvidia-smi: {done.stdout} {done.stderr}"
        rows = [[re.sub(r"^\[(.*)\]$", r"\1", word.strip()) for word in line.split(",")] for line in
                done.stdout.splitlines() if line.strip()]  # fmt: skip
        return [dict(zip(fields, row, strict=False)) for row in rows]

    def is_alive(self, pid: int) -> bool:
        return Path(f"/proc/{pid}").exists()


_NUMBERS = iter(range(1, 1000))
