"""Time from an edit of a script that knows nothing of the platform (`bench/user_script`) to the end of its first
optimizer step, with sending the folder, on each engine: two processes, on two nodes where the engine is not this
machine; where a process stands by with PyTorch imported, where none does, and the same script under torchrun.

Hosts are two agents, dev pods two of a fake cluster with real processes, nodes of Slurm two of a real one, all on this
machine. Measurements alternate.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench import live_platform, procfs, script
from bench.standby import StandbyLab
from bench.table import Figure
from bench.temp_platform import make_temp_folder
from bench.timing import measure_in_turns
from fermi.engines.carried_logs import AttemptFiles
from fermi.runner.standby import read_memory
from tests import slurm
from tests.agents import Host
from tests.polling import until

PROCESSES, ROUNDS = 2, 5
FindLog = Callable[[str], Path]


def measure() -> Iterator[Figure]:
    with ExitStack() as stack:
        folder = stack.enter_context(make_temp_folder())
        shutil.copytree(script.SOURCE, folder / "mine", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "mine" / "data.bin").write_bytes(os.urandom(script.TOKENS) * 2)
        script.set_vocabulary(folder / "mine" / "data.bin")
        cold = stack.enter_context(live_platform.run_platform(FERMI_STAND_BY="0"))
        yield from _measure_here(cold, folder)
        yield from _measure_hosts(cold, folder)
        yield from _measure_pods(cold, folder)
        if not slurm.why_not():
            yield from _measure_slurm(cold, folder)


def _compare(where: str, folder: Path, **actions: Callable[[], float]) -> Iterator[Figure]:
    for action in actions.values():
        action()  # is not counted: now every file has been read once
    took = measure_in_turns(ROUNDS, torchrun=partial(script.measure_torchrun, folder, PROCESSES), **actions)
    for way in actions:
        words = way.replace("_", " ")
        yield Figure(f"edit → first step, {where}, {words}", took[way], "s", took["torchrun"], "torchrun")


def _measure_here(cold: live_platform.LivePlatform, folder: Path) -> Iterator[Figure]:
    warm = live_platform.get_shared_platform()
    run = partial(_run, folder=folder, environments=["env-001"])

    def stand_by() -> float:
        live_platform.wait_for_stand_by(warm)
        return run(warm, log=partial(_find_log, warm))

    yield from _compare(
        "this machine", folder, not_warm=partial(run, cold, log=partial(_find_log, cold)), warm=stand_by
    )
    memory = read_memory(live_platform.wait_for_stand_by(warm))
    yield Figure("memory of what stands by, this machine", memory / (1 << 20), "MiB")


def _measure_hosts(running: live_platform.LivePlatform, folder: Path) -> Iterator[Figure]:
    answer = running.api.post("/workers/join-tokens", json={"name": "bench"}).raise_for_status()
    token = answer.json()["data"]["token"]
    hosts = {node: Host(running, folder / node, node, 1, token) for node in ("gn1", "gn2", "cold1", "cold2")}
    for node in ("cold1", "cold2"):
        text = hosts[node].config.read_text(encoding="utf-8")
        hosts[node].config.write_text(text.replace("warm = true", "warm = false"), encoding="utf-8")
    try:
        for host in hosts.values():
            host.start()
        found = {item["name"]: item["id"] for item in running.get("/dev-environments", pageSize=200)["items"]}

        def train(*names: str) -> float:
            log = partial(hosts[names[0]].log, attempt=1, rank=0)
            return _run(running, folder=folder, environments=[found[name] for name in names], log=log)

        def stand_by() -> float:
            for name in ("gn1", "gn2"):
                until(partial(_find_standby, hosts[name]), seconds=120, what="a process stands by")
            return train("gn1", "gn2")

        yield from _compare("two workers' hosts", folder, not_warm=partial(train, "cold1", "cold2"), warm=stand_by)
        memory = read_memory(_find_standby(hosts["gn1"]) or 0)
        yield Figure("memory of what stands by, a worker's host", memory / (1 << 20), "MiB")
    finally:
        for host in hosts.values():
            host.close()


def _find_standby(host: Host) -> int | None:
    return procfs.find_standby(host.agent.pid) if host.agent else None


def _measure_pods(running: live_platform.LivePlatform, folder: Path) -> Iterator[Figure]:
    lab = StandbyLab(running, folder / "pods")
    try:

        def train(warm: bool) -> float:
            lab.switch(warm)
            return _run(
                running, folder=folder, environments=lab.ids, run_in="environment",
                log=lambda task: AttemptFiles(running.data, task, 1).rank(0),
            )  # fmt: skip

        yield from _compare("two dev pods", folder, not_warm=partial(train, False), warm=partial(train, True))
        yield Figure("memory of what stands by, a dev pod", lab.switch(True) / len(lab.ids) / (1 << 20), "MiB")
    finally:
        lab.cluster.close()


def _measure_slurm(running: live_platform.LivePlatform, folder: Path) -> Iterator[Figure]:
    def create(path: str, **body: Any) -> Any:
        return running.api.post(path, json=body).raise_for_status().json()["data"]

    with slurm.started() as lab:
        connection = {**lab.connection, "python": sys.executable}
        cluster = create("/clusters", name="slurm", backend="slurm", connection=connection)["id"]
        facts = {"zone": "Slurm", "projectId": "default", "clusterId": cluster, "gpuCount": 1, "gpuType": "A100",
                 "emulated": True, "cpuCores": 4}  # fmt: skip
        nodes = [
            create("/dev-environments", name=f"slurm-{name}", engine={"node": name, "gres": "gpu:1"}, **facts)["id"]
            for name in slurm.NODES
        ]
        train = partial(_run, running, folder=folder, environments=nodes, log=partial(_find_log, running))
        yield from _compare("two nodes of Slurm", folder, not_warm=train)


def _find_log(running: live_platform.LivePlatform, task: str) -> Path:
    return running.data / "logs" / task / "1" / "0.log"


def _run(
    running: live_platform.LivePlatform, *, folder: Path, environments: list[str], log: FindLog, run_in: str = "auto"
) -> float:
    """Edit the script, send its folder, run it, and return the seconds to its first step."""
    path = folder / "mine" / "train.py"
    path.write_text(f"{path.read_text(encoding='utf-8')}\n# {time.time()}\n", encoding="utf-8")
    began = time.time()
    entry = {"script": "train.py", "args": ["--data_file=data.bin"]}
    nothing = dict.fromkeys(("datasetId", "datasetVersionId", "modelId"))
    code = {"snapshot": script.send_code(running, folder)}
    request = running.request(environments, entrypoint=entry, maxRestarts=0, code=code, **nothing)
    if run_in != "auto":
        request["distributedConfig"] |= {"runIn": run_in}
    answer = running.api.post("/training-tasks", json=request)
    assert answer.status_code == 201, json.dumps(answer.json())
    task = answer.json()["data"]["taskId"]
    took = script.wait_for_first_step(log(task), began)
    running.api.post(f"/training-tasks/{task}/stop").raise_for_status()
    running.until_final(task, seconds=120)
    return took
