"""Time from requesting a training to the end of the first optimizer step of a script that knows nothing of the platform
(`bench/user_script`), compared with the same script under torchrun.

The platform gets the folder once, as a snapshot, as `fermi submit --code .` sends it. From then on: from sending POST
/training-tasks until the script's first line `iter 0: …` is in rank 0's log; torchrun: from starting its process until
the same line. Cold: no process stands by. Warm: one has imported torch. Both platforms run all the while, and
measurements alternate. `edit → first step`: a line of the script is changed first, and sending the folder is included.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench import live_platform, procfs
from bench.table import Figure, FigureTarget
from bench.temp_platform import make_temp_folder
from bench.timing import measure_in_turns
from fermi.engines.local.launcher import build_training_env
from tests.platform_process import free_port
from tests.polling import until

SOURCE = Path(__file__).with_name("user_script")
ROUNDS = {1: (3, 3), 4: (3, 2), 14: (2, 1)}
"""Ours, and torchrun's."""
TARGETS = {"cold": 0.5, "warm": 0.1}
FIRST_STEP = b"iter 0: "
TOKENS = 100_000


def measure() -> Iterator[Figure]:
    warm = live_platform.get_shared_platform()
    with ExitStack() as stack:
        cold = stack.enter_context(live_platform.run_platform(FERMI_STAND_BY="0"))
        for running in (warm, cold):
            _add_environment(running)
        folder = stack.enter_context(make_temp_folder())
        shutil.copytree(SOURCE, folder / "mine", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "mine" / "data.bin").write_bytes(os.urandom(TOKENS) * 2)
        set_vocabulary(folder / "mine" / "data.bin")
        code = {id(running): send_code(running, folder) for running in (warm, cold)}
        for processes, (rounds, by_hand) in ROUNDS.items():
            if processes == 1:
                _measure_ours(cold, processes, code[id(cold)])  # is not counted: now every file has been read once
                measure_torchrun(folder, processes)
            took = measure_in_turns(
                rounds,
                {"torchrun": by_hand},
                cold=partial(_measure_ours, cold, processes, code[id(cold)]),
                warm=partial(_measure_warm, warm, processes, code[id(warm)]),
                edited=partial(_measure_edited, warm, processes, folder),
                torchrun=partial(measure_torchrun, folder, processes),
            )
            what = "1 process" if processes == 1 else f"{processes} processes"
            for way in ("cold", "warm"):
                target = FigureTarget(TARGETS[way], applies_to="ratio")
                yield Figure(
                    f"request → first step, {what}, {way}", took[way], "s", took["torchrun"], "torchrun", target
                )
            yield Figure(f"edit → first step, {what}, warm", took["edited"], "s", took["torchrun"], "torchrun")


def _add_environment(running: live_platform.LivePlatform) -> None:
    wish = {"name": "four-gpus", "projectId": "default", "clusterId": "local", "zone": "local", "gpuType": "A100",
            "gpuCount": 4, "emulated": True}  # fmt: skip
    made = running.api.post("/dev-environments", json=wish).raise_for_status().json()["data"]
    running.choices[4] = [made["id"]]


def set_vocabulary(data: Path) -> None:
    """Make each token of the file, two bytes, one of 256."""
    content = bytearray(data.read_bytes())
    content[1::2] = bytes(len(content) // 2)
    data.write_bytes(content)


def send_code(running: live_platform.LivePlatform, folder: Path) -> str:
    """Send the folder and return the snapshot's id."""
    env = {**running.env, "XDG_CACHE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    words = [sys.executable, "-m", "fermi.cli", "code", "send", str(folder / "mine"), "-o", "json"]
    sent = subprocess.run(words, env=env, check=True, capture_output=True)
    return str(json.loads(sent.stdout)["id"])


def _measure_ours(running: live_platform.LivePlatform, processes: int, code: str) -> float:
    """Return the seconds from the request to the first step."""
    changes: dict[str, Any] = {"entrypoint": {"script": "train.py", "args": ["--data_file=data.bin"]}, "maxRestarts": 0}
    nothing = dict.fromkeys(("datasetId", "datasetVersionId", "modelId"))
    task_id, began = live_platform.create_task(running, processes, code={"snapshot": code}, **changes, **nothing)
    took = wait_for_first_step(running.data / "logs" / task_id / "1" / "0.log", began)
    running.api.post(f"/training-tasks/{task_id}/stop").raise_for_status()
    running.until_final(task_id)
    return took


def _measure_warm(running: live_platform.LivePlatform, processes: int, code: str) -> float:
    live_platform.wait_for_stand_by(running)
    return _measure_ours(running, processes, code)


def _measure_edited(running: live_platform.LivePlatform, processes: int, folder: Path) -> float:
    live_platform.wait_for_stand_by(running)
    script = folder / "mine" / "train.py"
    script.write_text(f"{script.read_text(encoding='utf-8')}\n# {time.time()}\n", encoding="utf-8")
    began = time.monotonic()
    code = send_code(running, folder)
    sent = time.monotonic() - began
    return sent + _measure_ours(running, processes, code)


def wait_for_first_step(log: Path, began: float) -> float:
    """Return the seconds from `began` (unix) until the script's first line of a step is in the log."""
    until(lambda: log.exists() and FIRST_STEP in log.read_bytes(), seconds=180, what=f"the first step in {log}")
    return time.time() - began


def measure_torchrun(folder: Path, processes: int) -> float:
    """Return the seconds from the start of torchrun to the end of the script's first step."""
    log = folder / "torchrun.log"
    log.unlink(missing_ok=True)
    words = ["-m", "torch.distributed.run", f"--nproc_per_node={processes}", f"--master_port={free_port()}", "train.py"]
    env = {**build_training_env(), "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    began = time.time()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *words, "--data_file=data.bin"], env=env, cwd=folder / "mine", stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        return wait_for_first_step(log, began)
    finally:
        for pid in procfs.list_descendants(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
