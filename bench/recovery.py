"""Time from a rank's death (kill -9) to the end of the first optimizer step of the next attempt.

A rank other than the first is killed once a checkpoint exists; the first line of metrics of the second attempt's rank 0
has the `time` at which its step ended. Where the engine has one, a process stands by with everything imported, as on a
platform that has been running for a moment. Two hosts are two agents, or two nodes of a real Slurm, on this machine.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench import live_platform, procfs
from bench.table import Figure, FigureTarget
from bench.temp_platform import make_temp_folder
from tests import slurm
from tests.agents import Host
from tests.polling import until

HERE = {1: 2, 2: 2, 14: 1}
"""Processes, and how often: fourteen take five seconds, and each time the same to a twentieth."""
ROUNDS = 2  # elsewhere
HYPERPARAMETERS = {
    "totalSteps": 100_000,
    "stepDelay": 0.02,
    "logEvery": 1,
    "evalEvery": 100_000,
    "evalBatches": 1,
    "checkpointEvery": 5,
    "keepCheckpoints": 2,
}
TARGET_SECONDS = 2.5


def measure() -> Iterator[Figure]:
    running = live_platform.get_shared_platform()
    for processes, rounds in HERE.items():
        took = _measure_often(
            running, running.choices[processes], lambda: live_platform.wait_for_stand_by(running), rounds=rounds
        )
        what = "1 process" if processes == 1 else f"{processes} processes"
        yield Figure(
            f"kill -9 of a rank → next attempt's first step, {what}", took, "s", target=FigureTarget(TARGET_SECONDS)
        )
    yield from _measure_on_agents(running)
    if not slurm.why_not():
        yield from _measure_on_slurm(running)


def _measure_on_agents(running: live_platform.LivePlatform) -> Iterator[Figure]:
    answer = running.api.post("/workers/join-tokens", json={"name": "bench"}).raise_for_status()
    token = answer.json()["data"]["token"]
    with make_temp_folder() as folder:
        hosts = [Host(running, folder / node, node, 1, token) for node in ("gn1", "gn2")]
        try:
            for host in hosts:
                host.start()
            found = {item["name"]: item["id"] for item in running.get("/dev-environments", pageSize=200)["items"]}
            took = _measure_often(
                running,
                [found[host.node] for host in hosts],
                lambda: until(lambda: all(map(_has_standby, hosts)), seconds=120, what="a process stands by"),
                lambda task_id: hosts[0].log(task_id, 2, 0),
            )
            yield Figure("the same, 2 hosts with agents", took, "s", target=FigureTarget(TARGET_SECONDS))
        finally:
            for host in hosts:
                host.close()


def _has_standby(host: Host) -> bool:
    return bool(host.agent and procfs.find_standby(host.agent.pid))


def _measure_on_slurm(running: live_platform.LivePlatform) -> Iterator[Figure]:
    with slurm.started() as lab:
        connection = {**lab.connection, "python": sys.executable}
        cluster = _make_environments(running, "/clusters", name="slurm", backend="slurm", connection=connection)["id"]
        facts = {"zone": "Slurm", "projectId": "default", "clusterId": cluster, "gpuCount": 1, "gpuType": "A100",
                 "emulated": True, "cpuCores": 4}  # fmt: skip
        nodes = [
            _make_environments(
                running, "/dev-environments", name=f"slurm-{name}", engine={"node": name, "gres": "gpu:1"}, **facts
            )
            for name in slurm.NODES
        ]
        waits: list[float] = []

        def waited(task_id: str) -> None:
            """From sbatch's answer to the first thing that the job's script does."""
            runs = running.data / "runs" / f"{task_id}-2"
            waits.append((runs / "fermi").stat().st_mtime - (runs / "submitted.json").stat().st_mtime)

        places = [node["id"] for node in nodes]
        took = _measure_often(running, places, lambda: None, afterwards=waited)
        yield Figure("the same, 2 nodes of Slurm", took, "s")
        yield Figure(
            "the same, 2 nodes of Slurm, without its scheduling",
            took - median(waits),
            "s",
            target=FigureTarget(TARGET_SECONDS),
        )


def _make_environments(running: live_platform.LivePlatform, path: str, **body: Any) -> Any:
    return running.api.post(path, json=body).raise_for_status().json()["data"]


def _measure_often(
    running: live_platform.LivePlatform,
    environments: list[str],
    stand_by: Callable[[], object],
    log: Callable[[str], Path] | None = None,
    *,
    afterwards: Callable[[str], object] = str,
    rounds: int = ROUNDS,
) -> float:
    return median(_measure_once(running, environments, stand_by, log, afterwards) for _ in range(rounds))


def _measure_once(
    running: live_platform.LivePlatform,
    environments: list[str],
    stand_by: Callable[[], object],
    log: Callable[[str], Path] | None,
    afterwards: Callable[[str], object],
) -> float:
    request = running.request(environments, hyperparameters=HYPERPARAMETERS)
    task_id = _make_environments(running, "/training-tasks", **request)["taskId"]
    until(lambda: running.items(task_id, "checkpoints"), seconds=300, what="a checkpoint")
    victim = running.rank_pid(task_id, running.task(task_id)["worldSize"] - 1)
    stand_by()
    began = time.time()
    os.kill(victim, signal.SIGKILL)
    took = live_platform.wait_for_first_step(
        log(task_id) if log else running.data / "logs" / task_id / "2" / "0.log", began
    )
    afterwards(task_id)
    running.api.post(f"/training-tasks/{task_id}/stop").raise_for_status()
    running.until_final(task_id, seconds=120)
    return took
