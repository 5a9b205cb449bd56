"""A hundred kills, each in the life of a task whose ranks run inside of two dev pods: of a node runner, of a stream
(cut at any byte), of the platform's processes, of a container; each at any moment of the life. Afterwards each step's
line is there exactly once, the attempt is the same or the next one, as what was killed demands, and nothing is left.

A run takes a part of them (`tests.sampling`); all hundred: FERMI_TEST_ALL=1, whose figures are printed (`pytest -s`).
Which is killed when follows from SEED and the kill's number."""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import pytest

from tests.e2e.dev_pods import DevPods
from tests.fakes.kubernetes import HOME
from tests.fakes.stream_cuts import Cuts
from tests.platform_process import FINAL, Running
from tests.polling import until
from tests.sampling import some

pytestmark = pytest.mark.faults

KILLS, SEED = 100, 37
LINES, PAUSE_SECONDS = 50, 0.04
"""Two seconds of them."""
MOMENT_SECONDS = 4.0
"""From the request: before anything has begun, and after all has ended, too."""
STREAM_BYTES = 30_000
"""About what both streams of a task carry besides the bundle."""
NAMES, GPUS = ("first", "second"), 2
KINDS = ("runner", "stream", "platform", "container")
PARTS = ("worker", "web", "beat", "watch", "broker", "all")
CAUSES = {
    "runner": {"RUNNER_LOST"},
    "stream": set[str](),
    "platform": set[str](),
    "container": {"CONTAINER_RESTARTED", "OUT_OF_MEMORY"},
}
"""Why an attempt may end when such a one is killed."""
SCRIPT = f"""import json, time
for step in range({LINES}):
    print(json.dumps({{"step": step, "loss": 1.0, "time": time.time()}}), flush=True)
    time.sleep({PAUSE_SECONDS})
"""


@dataclass
class Kill:
    """`recovery`: seconds from the kill until the next attempt printed its first line; or, where there is none, until
    something was heard that was printed later, or the end, from a platform that answers."""

    number: int
    kind: str
    what: str = ""
    attempts: int = 0
    recovery: float = 0.0


@dataclass
class Figures:
    kills: list[Kill] = field(default_factory=list)

    def __str__(self) -> str:
        lines = []
        for kind in KINDS:
            if found := [one for one in self.kills if one.kind == kind]:
                same = sum(one.attempts == 1 for one in found)
                slowest = max(found, key=lambda one: one.recovery)
                lines.append(
                    f"{kind:10} {len(found):3} killed, {same:3} went on in the same attempt, {len(found) - same:3} "
                    f"began the next; recovery: median {median(one.recovery for one in found):.1f} s, longest "
                    f"{slowest.recovery:.1f} s (number {slowest.number}, {slowest.what})"
                )
        return "\n".join(lines)


class Lab(DevPods):
    """Two dev pods, of which one keeps its home when its container begins anew, and a platform that reaches their
    cluster by a way that can be cut."""

    def __init__(self, platform: Running, folder: Path) -> None:
        super().__init__(platform, folder)
        self.cuts = Cuts(self.cluster.url)
        for name, kept in zip(NAMES, ((HOME,), ()), strict=True):
            self.add(name, gpus=GPUS, kept=kept)
        self.connect(self.cuts.kubeconfig(self.cluster.kubeconfig, folder / "kubeconfig"))
        nothing = {"modelId": None, "maxRestarts": 2}
        self.asked = {**platform.request(self.ids), **self.request(SCRIPT), **nothing}

    def close(self) -> None:
        self.cuts.close()
        super().close()

    def send(self, method: str, path: str, **body: Any) -> Any:
        """Asked again while the web process is away; a task whose answer was lost is not made again."""
        headers = {"Idempotency-Key": f"{random.getrandbits(64):x}"} if method == "POST" else {}

        def asked() -> httpx.Response | None:
            try:
                answer = self.platform.api.request(method, path, json=body or None, headers=headers)
            except httpx.TransportError:
                return None
            return answer if answer.status_code < 500 else None

        answer = until(asked, what=f"an answer to {method} {path}")
        assert answer.status_code < 300, answer.text
        return answer.json()["data"] if answer.content else None

    def runners(self, name: str) -> list[int]:
        """Pids of the node runners in a dev pod."""
        return [one.pid for one in self.cluster.processes(self.pod(name)) if "fermi.runner.inside" in one.command]

    def left(self, name: str) -> list[tuple[str, ...]]:
        """What runs in a dev pod besides its own processes."""
        found = [one.command for one in self.cluster.processes(self.pod(name))]
        return [words for words in found if any("fermi" in word or "train.py" in word for word in words)]

    def left_in_cluster(self, task_id: str) -> list[str]:
        return [name for kind in ("configmaps", "pods", "jobs") for name in self.cluster.names(kind) if task_id in name]

    def heard_at(self, task_id: str) -> float:
        """When that was printed which was heard last, in unix seconds."""
        logs = (self.platform.data / "logs" / task_id).glob("*/0.log")
        last = [steps(path.read_text()) for path in logs]
        return max((found[-1]["time"] for found in last if found), default=0.0)

    def printed_at(self, task_id: str, attempt: int) -> float:
        """When the first rank to print began to, in unix seconds."""
        logs = (self.platform.data / "logs" / task_id / str(attempt)).glob("*.log")
        return min(float(found[0]["time"]) for log in logs if (found := steps(log.read_text())))


def steps(log: str) -> list[dict[str, Any]]:
    """What the script itself printed, in whole lines."""
    return [json.loads(line) for line in log.split("\n")[:-1] if line.startswith('{"step"')]


def pass_time(seconds: float) -> None:
    """To the moment that was drawn: nothing is waited for."""
    time.sleep(seconds)


def kill_runner(lab: Lab, chance: random.Random, task_id: str) -> str:
    """At any moment of its own life."""
    name = chance.choice(NAMES)
    pids = until(lambda: lab.runners(name) or is_over(lab, task_id), what="a runner")
    pass_time(chance.uniform(0.0, LINES * PAUSE_SECONDS + 1.0))
    if isinstance(pids, list):
        try:
            os.kill(pids[0], signal.SIGKILL)
        except ProcessLookupError:
            return f"runner in {name}, which had ended"
    return f"runner in {name}"


def cut_stream(lab: Lab, chance: random.Random, task_id: str) -> str:
    at, before = chance.randrange(STREAM_BYTES), lab.cuts.cuts
    lab.cuts.cut_after(at)
    cut = until(lambda: lab.cuts.cuts > before or is_over(lab, task_id), what="the stream is cut")
    lab.cuts.cut_after(None)
    return f"stream after {at} bytes" if lab.cuts.cuts > before and cut else f"stream, which was over before {at} bytes"


def kill_platform(lab: Lab, chance: random.Random, task_id: str) -> str:
    part = chance.choice(PARTS)
    pass_time(chance.uniform(0.0, MOMENT_SECONDS))
    if part != "all":
        lab.platform.kill(part)
        return part
    lab.platform.kill_everything()
    pass_time(chance.uniform(0.0, 1.0))
    lab.platform.start()
    return "all processes of the platform"


def kill_container(lab: Lab, chance: random.Random, task_id: str) -> str:
    name, reason = chance.choice(NAMES), chance.choice(("Error", "OOMKilled"))
    pass_time(chance.uniform(0.0, MOMENT_SECONDS))
    lab.cluster.kill_container(lab.pod(name), reason)
    return f"container of {name}, {reason}"


DO: dict[str, Callable[[Lab, random.Random, str], str]] = {
    "runner": kill_runner, "stream": cut_stream, "platform": kill_platform, "container": kill_container,
}  # fmt: skip


def is_over(lab: Lab, task_id: str) -> bool:
    return lab.platform.task(task_id)["status"] in FINAL


def check_life(lab: Lab, kill: Kill, task_id: str) -> None:
    """Of a task that has ended."""
    task = lab.platform.task(task_id)
    where = f"number {kill.number}: {kill.kind}: {kill.what}: {task['reason']} {task['attempts']}"
    assert task["status"] == "succeeded", where
    kill.attempts = task["attempt"]
    codes = [one["outcome"]["code"] for one in task["attempts"][:-1]]
    ended = [code for code in codes if code != "MASTER_PORT_TAKEN"]  # by another test's platform on this machine
    assert len(ended) <= 1, where
    assert {*ended} <= CAUSES[kill.kind], where
    for attempt in range(1, kill.attempts + 1):
        for rank in range(GPUS * len(NAMES)):
            found = [one["step"] for one in steps(lab.platform.log(task_id, rank, attempt))]
            whole = LINES if attempt == kill.attempts else len(found)
            assert found == list(range(whole)), f"{where}: rank {rank} of attempt {attempt}: {found}"
    points = lab.platform.items(task_id, "metrics", limit=1000)
    stored = Counter((one["attempt"], one["rank"], one["step"]) for one in points if "loss" in one["values"])
    assert {key: count for key, count in stored.items() if count > 1} == {}, where
    last = {(rank, step) for attempt, rank, step in stored if attempt == kill.attempts}
    assert last == {(rank, step) for rank in range(GPUS * len(NAMES)) for step in range(LINES)}, where


def check_nothing_left(lab: Lab, kill: Kill, task_id: str) -> None:
    where = f"number {kill.number}: {kill.kind}: {kill.what}"
    for key in lab.ids:
        assert lab.platform.get(f"/dev-environments/{key}")["heldBy"] is None, where
    for name in NAMES:
        until(lambda name=name: not lab.left(name), what=f"{where}: nothing runs in {name}: {lab.left(name)}")
    lab.send("DELETE", f"/training-tasks/{task_id}")
    until(lambda: not lab.left_in_cluster(task_id), what=f"{where}: nothing of it is in the cluster")
    for name in NAMES:
        folder = f"{HOME}/.fermi/runs"
        said = lab.run(name, "sh", "-c", f"ls {folder} 2>/dev/null | cat")
        assert task_id not in said, f"{where}: {name} has {said!r}"


@pytest.fixture(scope="module")
def lab(platform: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(platform, tmp_path_factory.mktemp("lab"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def figures() -> Iterator[Figures]:
    found = Figures()
    yield found
    print(f"\n{found}")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_loses_duplicates_and_leaves_nothing(lab: Lab, figures: Figures, kind: str) -> None:
    for number in some(range(KINDS.index(kind), KILLS, len(KINDS)), 12):
        kill_once(lab, figures, number)


def kill_once(lab: Lab, figures: Figures, number: int) -> None:
    chance = random.Random(f"{SEED}/{number}")
    kill = Kill(number, KINDS[number % len(KINDS)])
    lab.until_found()
    task_id = lab.create(lab.asked)
    kill.what = DO[kill.kind](lab, chance, task_id)
    at = time.time()
    until(lambda: lab.heard_at(task_id) > at or is_over(lab, task_id), what="it is heard of again")
    kill.recovery = time.time() - at
    lab.platform.until_final(task_id)
    check_life(lab, kill, task_id)
    if kill.attempts > 1 and lab.printed_at(task_id, kill.attempts) > at:
        kill.recovery = lab.printed_at(task_id, kill.attempts) - at
    check_nothing_left(lab, kill, task_id)
    print(kill)
    figures.kills.append(kill)
