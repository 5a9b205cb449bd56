"""512 ranks inside 64 dev pods of a fake cluster whose containers are real processes: time from the request until all
of them run, the API requests that this takes, the API requests while they run and nothing happens, and the time from
the stop until nothing of them is left; and how fast output comes from a pod through `pods/exec`. The ranks do nothing
but report that they run: their imports are not part of it.

Compared with doing it by hand: a client that executes a shell in each pod, as many at a time, which starts eight such
ranks; and `cat` of a file of the same size.
"""

import json
import shlex
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import kubernetes, live_platform
from bench.cluster import BenchCluster
from bench.table import Figure, FigureTarget
from bench.timing import measure_in_turns
from fermi.engines.kubernetes.channels import PodExecStream
from fermi.engines.kubernetes.client import KubernetesClient
from tests.e2e.test_code import fermi
from tests.polling import until

PODS, GPUS = 64, 8
IDLE_SECONDS = 15.0
LINE = "0123456789 abcdefghij 0123456789 abcdefghij 0123456789 abcdefghij 0123456789 abcdefghij 0123456789\n"
LINES = 300_000
SIZE = LINES * len(LINE)
"""Of what one rank prints: 30 MB, as much as is kept of a log in an environment, in pieces of 10 kB."""
ROUNDS = 2
OUTPUT_TEXT = r"import os, time; os.write(1, b'at %f\n' % time.time()); time.sleep(86400)"
"""At once: several write to one pipe."""
TEXT = f"os.write(1, b'at %f\\n' % time.time()); [os.write(1, {LINE.encode()!r} * 100) for _ in range({LINES // 100})]"
WRITES = f"import os, time; {TEXT}"
PRINTS = f"import os\nif os.environ['RANK'] == '0': {WRITES}\n"


def measure() -> Iterator[Figure]:
    running = live_platform.get_shared_platform()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(BenchCluster(folder, PODS))
        cluster.order("dev_pods", GPUS, True)
        connection = kubernetes.make_connection(folder, cluster)
        stored = {name: value for name, value in connection.items() if name != "data_dir"}
        body = {"name": "inside", "backend": "kubernetes", "connection": stored}
        key = running.api.post("/clusters", json=body).raise_for_status().json()["data"]["id"]
        environments = (
            until(partial(_list_environments, running, key), seconds=120, what="dev pods are looked into") or []
        )
        code = _send_snapshot(running, folder, {"says.py": OUTPUT_TEXT, "prints.py": PRINTS})
        client = KubernetesClient(connection)
        stack.callback(client.close)
        yield from _measure_start(running, cluster, client, environments, code)
        yield from _measure_printing(running, client, environments[0], cluster.order("pod_names")[0], code)


def _list_environments(running: live_platform.LivePlatform, cluster: str) -> list[str] | None:
    """Return the environments that have been surveyed, the first pod first."""
    items = running.get("/dev-environments", cluster=cluster, status="running", pageSize=200)["items"]
    if len(items) < PODS:
        return None
    whole = [running.get(f"/dev-environments/{item['id']}") for item in items]
    known = {one["name"]: one["id"] for one in whole if "python" in ((one["engine"] or {}).get("inside") or {})}
    return [known[name] for name in sorted(known)] if len(known) == PODS else None


def _send_snapshot(running: live_platform.LivePlatform, folder: Path, files: dict[str, str]) -> str:
    """Upload the code and return the snapshot's id."""
    (folder / "mine").mkdir()
    for name, text in files.items():
        (folder / "mine" / name).write_text(text)
    return str(json.loads(fermi(running, folder, "code", "send", str(folder / "mine"), "-o", "json").stdout)["id"])


def _create_task(running: live_platform.LivePlatform, environments: list[str], script: str, code: str) -> str:
    """Create the task and return its id."""
    many = {"enabled": True, "nodeIds": environments, "masterNode": environments[0], "framework": "ddp"}
    return running.create(
        environments, entrypoint={"script": script}, code={"snapshot": code}, datasetId=None, datasetVersionId=None,
        modelId=None, maxRestarts=0, distributedConfig={**many, "runIn": "environment"},
    )  # fmt: skip


# --- beginning, being idle, ending ---


def _measure_start(
    running: live_platform.LivePlatform,
    cluster: BenchCluster,
    client: KubernetesClient,
    environments: list[str],
    code: str,
) -> Iterator[Figure]:
    _measure_stop(
        running, cluster, _create_task(running, environments[:2], "says.py", code)
    )  # from here on all are connected
    asked = Counter[str]()

    def ours() -> float:
        calls, began = cluster.order("calls"), time.time()
        task = _create_task(running, environments, "says.py", code)
        last = until(partial(_read_last_start, running, task), seconds=300, what="all ranks run") or 0.0
        running.until_state(task, "running")
        asked.update(cluster.order("asked", calls))
        until(lambda: kubernetes.wait_until_settled(cluster), seconds=120, what="quiet")
        calls = cluster.order("calls")
        time.sleep(IDLE_SECONDS)
        asked.update({f"idle {what}": count for what, count in cluster.order("asked", calls).items()})
        asked["left"] = round(1e3 * _measure_stop(running, cluster, task))
        return last - began

    def raw() -> float:
        began = time.time()
        last = max(client.together(partial(_start_raw_ranks, client), cluster.order("pod_names")))
        until(lambda: cluster.order("inside") == 0, seconds=120, what="nothing is left of them")
        return last - began

    took = measure_in_turns(1, raw=raw, ours=ours)
    left, leases = asked.pop("left") / 1e3, asked.pop("idle list leases", 0)
    idle = sum(asked.pop(what) for what in list(asked) if what.startswith("idle "))
    ranks = f"{PODS * GPUS} ranks in {PODS} pods"
    yield Figure(
        f"{ranks}: asked for → all run", took["ours"], "s", took["raw"], "raw", FigureTarget(5, applies_to="ratio")
    )
    yield Figure("the same: stopped → nothing is left", left, "s")
    yield Figure("until all run, requests per environment", asked.total() / PODS, "", target=FigureTarget(5))
    for what, count in sorted(asked.items()):
        yield Figure(f"of these: {what}", count, "")
    yield Figure(f"requests while all run, in {IDLE_SECONDS:.0f} s", idle, "", target=FigureTarget(0))
    yield Figure("the same: whether machines live, for all tasks together", leases, "")


def _read_last_start(running: live_platform.LivePlatform, task: str) -> float | None:
    """Return when the last rank started, in unix seconds by its own clock; None while one is missing."""
    logs = list((running.data / "logs" / task / "1").glob("[0-9]*.log"))
    if len(logs) < PODS * GPUS:
        return None
    found = [line.split()[1] for log in logs for line in log.read_text().splitlines() if line.startswith("at ")]
    return max(map(float, found)) if len(found) == PODS * GPUS else None


def _measure_stop(running: live_platform.LivePlatform, cluster: BenchCluster, task: str) -> float:
    """Stop the task and return the seconds until no process of it is left."""
    running.until_state(task, "running")
    began = time.monotonic()
    running.api.post(f"/training-tasks/{task}/stop").raise_for_status()
    until(lambda: cluster.order("inside") == 0, seconds=120, what="nothing is left")
    took = time.monotonic() - began
    running.until_final(task)
    return took


def _start_raw_ranks(client: KubernetesClient, pod: str) -> float:
    """Start the ranks by hand, return when the last of them started, and end them."""
    one = shlex.join([sys.executable, "-u", "-c", OUTPUT_TEXT])
    script = f"for rank in $(seq {GPUS}); do {one} & done; read line; kill 0"
    running = PodExecStream(client.execute(pod, "", ["sh", "-c", script]))
    with running.stream as stream:
        read = stream.makefile("rb")
        said = [float(read.readline().split()[1]) for _ in range(GPUS)]
        stream.sendall(b"\n")
        while read.read(1 << 16):
            pass
    return max(said)


# --- output ---


def _measure_printing(
    running: live_platform.LivePlatform, client: KubernetesClient, environment: str, pod: str, code: str
) -> Iterator[Figure]:
    missing = 0

    def ours() -> float:
        nonlocal missing
        task = _create_task(running, [environment], "prints.py", code)
        log = running.data / "logs" / task / "1" / "0.log"
        ended = until(lambda: _read_size(log) >= SIZE and time.time(), seconds=300, what="all of it is here")
        running.until_final(task)
        text = log.read_bytes()
        missing += LINES - text.count(LINE.encode())
        return ended - float(text.partition(b"at ")[2].split(None, 1)[0])

    def raw() -> float:
        running = PodExecStream(client.execute(pod, "", [sys.executable, "-c", WRITES]))
        with running.stream as stream:
            began = float(stream.recv(64, socket.MSG_WAITALL).split()[1])
            come = 64
            while come < SIZE and (data := stream.recv(1 << 16)):
                come += len(data)
        return time.time() - began

    took = measure_in_turns(ROUNDS, raw=raw, ours=ours)
    ours_mb, raw_mb = (SIZE / took[name] / 1e6 for name in ("ours", "raw"))
    yield Figure("output of a rank in a pod, stored", ours_mb, "MB/s", raw_mb, "raw, thrown away")
    yield Figure("the same, lines", LINES / took["ours"], "/s", target=FigureTarget(100_000, "at least"))
    yield Figure(f"of {ROUNDS * LINES:,} lines, missing", missing, "", target=FigureTarget(0))


def _read_size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0
