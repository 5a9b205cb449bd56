"""A fake cluster in a process of its own, so that it does not share an interpreter with what is measured.

python -m bench.cluster <folder>      then a line of JSON for each order, and one back
"""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fermi.runner import processes
from tests.fakes.kubernetes import FakeCluster, Sleeps
from tests.fakes.kubernetes.kubelet.containers import SHIM


class BenchCluster:
    """The fake cluster, as a context manager; `order` calls one of the functions of `ClusterOrders`."""

    def __init__(self, folder: Path, nodes: int = 1) -> None:
        self.kubeconfig = folder / "kubeconfig"
        command = [sys.executable, "-m", "bench.cluster", str(folder), str(nodes)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.order("ready")

    def order(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> "BenchCluster":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


class ClusterOrders:
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def ready(self) -> bool:
        return True

    def pause(self, on: bool) -> None:
        self.cluster.pause_controllers(on=on)

    def calls(self) -> int:
        return len(self.cluster.calls())

    def running(self, pattern: str = "task-*") -> int:
        return sum(pod["status"].get("phase") == "Running" for pod in self.cluster.pods(pattern))

    def left(self) -> int:
        """Return how many jobs and pods of tasks exist."""
        return sum(name.startswith("task-") for kind in ("jobs", "pods") for name in self.cluster.names(kind))

    def take_time(self, latency: float) -> None:
        self.cluster.take_time(latency)

    def dev_pods(self, gpus: int, real: bool = False) -> int:
        """Create one dev pod on each machine."""
        notes = {"fermi.io/emulated-gpus": str(gpus), "fermi.io/gpu-type": "A100", "fermi.io/python": sys.executable}
        machines = self.cluster.names("nodes", "")
        for name in machines:
            labels = {"fermi.io/dev-environment": "true"}
            self.cluster.add_dev_pod(
                f"dev-{name}", name, labels=labels, annotations=notes, cpu="8", memory="64Gi", real=real
            )
        return len(machines)

    def pod_names(self) -> list[str]:
        """Return the names of dev pods."""
        return sorted(pod["metadata"]["name"] for pod in self.cluster.pods("dev-*"))

    def inside(self) -> int:
        """Return how many Python processes run in dev pods: all of them are ranks or supervise ranks. Reads /proc once:
        there may be thousands of processes."""
        words = [processes.read_words(pid, "cmdline") for pid in processes.list_living_descendants()]
        return sum("python" in one[0] and str(SHIM) not in one for one in words if one)

    def asked(self, since: int) -> dict[str, int]:
        """Return the number of calls of each kind since call number `since`."""
        calls = self.cluster.calls()[since:]
        return Counter(f"{call.verb} {'/'.join(filter(None, (call.resource, call.subresource)))}" for call in calls)

    def requests(self, since: int) -> dict[str, int]:
        """Return how often each kind of object was created or deleted since call number `since`, and how often without
        success."""
        calls = [call for call in self.cluster.calls()[since:] if call.verb in ("create", "delete")]
        found = Counter(call.verb for call in calls)
        found["in vain"] = sum(call.code >= 400 for call in calls)
        return found

    def evict(self, pattern: str) -> float:
        """Evict a pod and return when its phase had changed, on the clock that all processes share."""
        pod = self.cluster.pods(pattern)[0]
        self.cluster.evict(pod)
        while self.cluster.pods(pattern)[0]["status"]["phase"] != "Failed":
            threading.Event().wait(0.0002)
        return time.monotonic()


def main(folder: str, nodes: str) -> None:
    cluster = FakeCluster(Path(folder)).start()
    cluster.script("task-*", Sleeps())
    for number in range(int(nodes)):
        cluster.add_node(f"machine-{number}", cpu="100000", memory="1000Ti")
    orders = ClusterOrders(cluster)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(orders, name)(*arguments)), flush=True)
    cluster.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
