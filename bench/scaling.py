"""Speed-up and efficiency of 1, 2, 4 and 8 emulated nodes with one process each, as in the requirement document's
table.

A step has a fixed cost (`stepDelay`), which stands for a GPU's work: processes that sleep overlap, however few cores
there are. What is lost is then what really limits training: the reduction of gradients, waiting for the slowest rank,
loading of data; and, on this machine, the cores that the ranks' own work shares.

A step's time is the median between rank 0's lines of metrics; each node brings a batch of its own, so n nodes are n
times as fast where a step takes as long as on one.
"""

import json
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median

from bench import live_platform
from bench.table import Figure

NODES = (1, 2, 4, 8)
DELAY = 0.5
WARM_UP = 4  # steps that are not counted
HYPERPARAMETERS = {
    "stepDelay": DELAY, "totalSteps": 24, "batchSize": 8, "logEvery": 1, "evalEvery": 0, "evalBatches": 1,
    "checkpointEvery": 0,
}  # fmt: skip


def measure() -> Iterator[Figure]:
    with live_platform.run_platform() as running:
        environments = [_make_environment(running, number) for number in range(max(NODES))]
        seconds = {count: _measure_step(running, environments[:count]) for count in NODES}
    print(print_report(seconds, len(os.sched_getaffinity(0))), flush=True)
    for count, took in seconds.items():
        name = "1 node" if count == 1 else f"{count} nodes"
        yield Figure(
            f"speed-up of {name}, a step of {DELAY:g} s", compute_speed_up(seconds, count), "×", count, "theoretical"
        )
        yield Figure(f"a step on {name}", took, "s")


def compute_speed_up(seconds: Mapping[int, float], nodes: int) -> float:
    return nodes * seconds[1] / seconds[nodes]


def print_report(seconds: Mapping[int, float], cores: int) -> str:
    """Print the requirement document's table, and where the difference to the ideal comes from."""
    rows: list[tuple[str, list[str]]] = [
        ("GPUs", [str(nodes) for nodes in seconds]),
        ("theoretical speed-up", [f"{nodes}x" for nodes in seconds]),
        ("actual speed-up", [f"{compute_speed_up(seconds, nodes):.2f}x" for nodes in seconds]),
        ("efficiency", [f"{compute_speed_up(seconds, nodes) / nodes:.0%}" for nodes in seconds]),
        ("seconds per step", [f"{took:.3f}" for took in seconds.values()]),
    ]
    head = ["", *("1 node" if nodes == 1 else f"{nodes} nodes" for nodes in seconds)]
    lines = [f"{head[0]:22}" + "".join(f"{cell:>10}" for cell in head[1:])]
    lines += [f"{name:22}" + "".join(f"{cell:>10}" for cell in cells) for name, cells in rows]
    most = max(seconds)
    own = max(0.0, seconds[1] - DELAY)
    shared = own * max(0.0, most / cores - 1)
    rest = max(0.0, seconds[most] - seconds[1] - shared)
    lines.append(
        f"What limits it here: beside the {DELAY:g} s a step is {own * 1e3:.0f} ms of a rank's own work. {most} ranks "
        f"share {cores} cores, which makes {shared * 1e3:.0f} ms more of it; {rest * 1e3:.0f} ms are communication "
        "(all-reduce over the loopback), waiting for the slowest rank, and loading of data."
    )
    return "\n".join(lines)


def _make_environment(running: live_platform.LivePlatform, number: int) -> str:
    wish = {"name": f"scaling-{number}", "projectId": "default", "clusterId": "local", "zone": "local",
            "gpuType": "A100", "gpuCount": 1, "emulated": True}  # fmt: skip
    answer = running.api.post("/dev-environments", json=wish).raise_for_status()
    return str(answer.json()["data"]["id"])


def _measure_step(running: live_platform.LivePlatform, environments: list[str]) -> float:
    """Return the seconds of a step."""
    answer = running.api.post("/training-tasks", json=running.request(environments, hyperparameters=HYPERPARAMETERS))
    task = answer.raise_for_status().json()["data"]["taskId"]
    running.until_state(task, "succeeded", seconds=300)
    log = (running.data / "logs" / task / "1" / "0.log").read_text(encoding="utf-8", errors="replace")
    said = [json.loads(line)["time"] for line in log.splitlines() if line.startswith('{"step": ') and "tokens" in line]
    return median(after - before for before, after in pairwise(said[WARM_UP:]))
