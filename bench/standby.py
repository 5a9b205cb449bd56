"""Time from requesting a training inside two dev pods, of a fake cluster with real processes, to the end of its first
optimizer step: without a process that stands by in them, with one, and under torchrun by hand.

`ranks begin`: when the last node runner has started its rank. What is left to the first step is the import of PyTorch,
where no process has imported it yet, and the ranks' rendezvous.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench import live_platform, procfs
from bench.table import Figure, FigureTarget
from bench.temp_platform import make_temp_folder
from bench.timing import measure_in_turns
from fermi.engines.carried_logs import AttemptFiles
from tests.e2e.kubernetes_platform import DEV, MOUNT
from tests.fakes.kubernetes import FakeCluster
from tests.polling import until

NAMES = ("one", "two")
ROUNDS = 3
HYPERPARAMETERS = {"totalSteps": 100_000, "evalBatches": 1}
WARM_SECONDS, COLD_SECONDS = 1.0, 1.0
"""Targets: with one, in all; without, on top of what torchrun takes."""


class StandbyLab:
    """Two dev pods, each with one process and the platform's data."""

    def __init__(self, running: live_platform.LivePlatform, folder: Path) -> None:
        self.running = running
        self.cluster = FakeCluster(folder / "kubernetes").start()
        self.cluster.add_claim("data", running.data)
        for name in NAMES:
            self.cluster.add_node(f"machine-{name}")
            self.cluster.add_dev_pod(
                name, f"machine-{name}", real=True, labels=DEV, volumes={MOUNT: "data"},
                annotations={"fermi.io/python": sys.executable, "fermi.io/emulated-gpus": "1"},
                env={"FERMI_PYTHON": sys.executable},
            )  # fmt: skip
        volume = {"persistentVolumeClaim": {"claimName": "data"}}
        connection = {"kubeconfig": str(self.cluster.kubeconfig), "namespace": self.cluster.namespace,
                      "data": {"mountPath": MOUNT, "volume": volume}}  # fmt: skip
        body = {"name": "standby", "backend": "kubernetes", "connection": connection}
        answer = running.api.post("/clusters", json=body).raise_for_status()
        self.key = answer.json()["data"]["id"]
        found: list[str] | None = until(self._found, seconds=120, what="the dev pods are found and looked into")
        self.ids = found or []
        self.task = ""

    def _found(self) -> list[str] | None:
        items = self.running.get("/dev-environments", cluster=self.key, status="running")["items"]
        whole = [self.running.get(f"/dev-environments/{one['id']}") for one in items]
        known = [one["id"] for one in whole if (one["engine"] or {}).get("inside")]
        return known if len(known) == len(NAMES) else None

    def switch(self, warm: bool) -> int:
        """Turn standing by on or off; return the memory of the processes that stand by then, in bytes."""
        for key in self.ids:
            self.running.api.patch(f"/dev-environments/{key}", json={"warm": warm}).raise_for_status()
        wanted = {"standing"} if warm else {"off"}

        def settled() -> list[dict[str, Any]] | None:
            found = [self.running.get(f"/dev-environments/{key}")["standby"] for key in self.ids]
            return found if {one["state"] for one in found} == wanted else None

        what = f"the environments are {'warm' if warm else 'not warm'}"
        found: list[dict[str, Any]] | None = until(settled, seconds=120, what=what)
        return sum(one["memoryBytes"] or 0 for one in found or ())

    def train(self, began_after: list[float]) -> float:
        """Run a training and return the seconds to the first step; record those until the last rank started."""
        asked = {"runIn": "environment"}
        request = self.running.request(self.ids, hyperparameters=HYPERPARAMETERS, maxRestarts=0)
        request["distributedConfig"] |= asked
        began = time.time()
        answer = self.running.api.post("/training-tasks", json=request)
        assert answer.status_code == 201, answer.text
        self.task = answer.json()["data"]["taskId"]
        files = AttemptFiles(self.running.data, self.task, 1)
        took = live_platform.wait_for_first_step(files.rank(0), began)
        ranks = [rank for node in range(len(NAMES)) for rank in files.report(node).get("ranks") or ()]
        began_after.append(max(rank["began_at"] for rank in ranks) - began if ranks else 0.0)
        return took

    def stop(self) -> None:
        self.running.api.post(f"/training-tasks/{self.task}/stop").raise_for_status()
        self.running.until_final(self.task)

    def once(self, warm: bool, began_after: list[float]) -> float:
        self.switch(warm)
        took = self.train(began_after)
        self.stop()
        return took


def measure() -> Iterator[Figure]:
    with live_platform.run_platform(FERMI_STAND_BY="0") as running, make_temp_folder() as folder:
        folder.mkdir()
        lab = StandbyLab(running, folder)
        try:
            yield from _measure_starts(lab, folder)
        finally:
            running.close()
            lab.cluster.close()


def _measure_starts(lab: StandbyLab, folder: Path) -> Iterator[Figure]:
    words = [live_platform.TRAINER, *_read_arguments(lab)]
    cold, warm, first = list[float](), list[float](), list[float]()
    yield Figure("request → first step, never entered before", lab.once(False, first), "s")
    took = measure_in_turns(
        ROUNDS,
        cold=partial(lab.once, False, cold),
        warm=partial(lab.once, True, warm),
        torchrun=partial(_measure_torchrun, words, folder / "torchrun.log"),
    )
    cold.sort()
    warm.sort()
    torchrun = took["torchrun"]
    yield Figure("request → ranks begin, not warm", cold[len(cold) // 2], "s")
    target = FigureTarget(torchrun + COLD_SECONDS)
    yield Figure("request → first step, not warm", took["cold"], "s", torchrun, "torchrun", target)
    yield Figure("request → ranks begin, warm", warm[len(warm) // 2], "s")
    yield Figure("request → first step, warm", took["warm"], "s", torchrun, "torchrun", FigureTarget(WARM_SECONDS))
    yield Figure("memory of what stands by, of one environment", lab.switch(True) / len(NAMES) / (1 << 20), "MiB")


def _read_arguments(lab: StandbyLab) -> list[str]:
    """Return the trainer's arguments, as a node was sent them, with this machine's paths."""
    request = lab.running.request(lab.ids, hyperparameters=HYPERPARAMETERS, maxRestarts=0)
    answer = lab.running.api.post("/training-tasks/preview", json=request).raise_for_status()
    shown = next(one for one in answer.json()["data"]["artifacts"] if '"command"' in one["content"])
    command = json.loads(shown["content"])["spec"]["command"]
    rest = command[command.index(live_platform.TRAINER) + 1 :]
    return [str(word).replace(MOUNT, str(lab.running.data)) for word in rest]


def _measure_torchrun(words: list[str], log: Path) -> float:
    log.unlink(missing_ok=True)
    began = time.time()
    process = live_platform.run_torchrun(words, len(NAMES), log)
    try:
        return live_platform.wait_for_first_step(log, began)
    finally:
        for pid in procfs.list_descendants(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
