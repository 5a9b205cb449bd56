"""One real platform, and what faults are made with. What only few of them need is there from the first that asks."""

import itertools
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.kubernetes_platform import DEV
from tests.fakes.kubernetes import FakeCluster
from tests.faults.catalogue.cgroups import Group
from tests.faults.catalogue.hosts import Site
from tests.platform_process import WARM, Running, free_port
from tests.polling import until
from tests.slurm import Slurm

if TYPE_CHECKING:
    from tests.faults.catalogue.fault import FaultRun


class FaultLab:
    def __init__(self, **settings: str) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="fermi-faults-", dir="/tmp"))
        self.scratch.chmod(0o755)
        self.platform = Running(self.scratch / "data", **WARM, **settings)
        self.open = ExitStack()
        self.lock = threading.RLock()
        self.numbers = itertools.count()

    def __enter__(self) -> "FaultLab":
        os.environ.setdefault("FERMI_TEST_DATA", str(self.scratch))
        try:
            self.platform.start()
            self.mine = self.platform.get("/dev-environments/env-001")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self.open.close()
        self.platform.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def send(self, method: str, path: str, **body: Any) -> Any:
        answer = self.platform.api.request(method, path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()["data"]

    # Environments ----------------------------------------------------------------------------------------------

    def environments(self, run: "FaultRun", gpus: Sequence[int], **changes: Any) -> list[str]:
        """Of this machine, with emulated GPUs; names are added to the run."""
        made = []
        for letter, count in zip("abcdefgh", gpus, strict=False):
            name = f"{run.slug}-{letter}"
            body = {"name": name, "zone": self.mine["zone"]["id"], "projectId": self.mine["projectId"],
                    "clusterId": self.mine["clusterId"], "status": "running", "gpuType": "A100", "gpuCount": count,
                    "emulated": True, **changes}  # fmt: skip
            made.append(self.send("POST", "/dev-environments", **body)["id"])
            run.nodes.append(name)
        return made

    def group(self, run: "FaultRun", **limits: str) -> Group:
        """A control group with such limits, removed when the run is over."""
        return run.after.enter_context(Group(f"fermi-faults-{os.getpid()}-{next(self.numbers)}", limits))

    # Engines ---------------------------------------------------------------------------------------------------

    @cached_property
    def slurm(self) -> tuple[Slurm, str]:
        """And its cluster's id."""
        lab = Slurm()
        self.open.callback(lab.close)
        lab.start()
        connection = {**lab.connection, "python": sys.executable}
        return lab, self.send("POST", "/clusters", name="slurm", backend="slurm", connection=connection)["id"]

    def on_slurm(self, run: "FaultRun") -> list[str]:
        with self.lock:
            _lab, cluster = self.slurm
        made = []
        for name in ("n2", "n1"):
            body = {"name": f"{run.slug}-{name}", "zone": "machine room", "clusterId": cluster,
                    "projectId": self.mine["projectId"], "gpuCount": 1, "gpuType": "A100", "emulated": True,
                    "cpuCores": 4, "engine": {"node": name, "gres": "gpu:1"}}  # fmt: skip
            made.append(self.send("POST", "/dev-environments", **body)["id"])
            run.nodes.append(body["name"])
        run.request["distributedConfig"] = build_distributed_config(made)  # its nodes share this machine's addresses
        return made

    @cached_property
    def kubernetes(self) -> tuple[FakeCluster, str]:
        """And its cluster's id."""
        cluster = FakeCluster(self.scratch / "kubernetes").start()
        self.open.callback(cluster.close)
        cluster.add_claim("fermi-data", self.platform.data)
        connection = {
            "kubeconfig": str(cluster.kubeconfig), "namespace": cluster.namespace,
            "data": {"mountPath": "/fermi-data", "volume": {"persistentVolumeClaim": {"claimName": "fermi-data"}}},
        }  # fmt: skip
        made = self.send("POST", "/clusters", name="kubernetes", backend="kubernetes", connection=connection)
        return cluster, made["id"]

    def on_kubernetes(self, run: "FaultRun", nodes: int = 2) -> list[str]:
        """Dev pods, each on a machine of its own (`<name>-machine`), as the platform finds them."""
        with self.lock:
            cluster, cluster_id = self.kubernetes
        names = [f"{run.slug}-{letter}" for letter in "abcd"[:nodes]]
        notes = {"fermi.io/emulated-gpus": "1", "fermi.io/gpu-type": "A100", "fermi.io/python": sys.executable}
        for name in names:
            cluster.add_node(f"{name}-machine", cpu="96")
            cluster.add_dev_pod(name, f"{name}-machine", labels=DEV, annotations=notes, cpu="8", memory="8Gi")

        def found() -> list[str] | None:
            items = self.platform.get("/dev-environments", cluster=cluster_id, status="running", pageSize=200)["items"]
            ids = {item["name"]: item["id"] for item in items}
            return [ids[name] for name in names] if ids.keys() >= set(names) else None

        run.nodes += names
        made = until(found, what="the dev pods are found") or []
        run.request["distributedConfig"] = build_distributed_config(made)  # pods of the fake share them, too
        return made

    # Hosts -----------------------------------------------------------------------------------------------------

    def hosts(self, run: "FaultRun", nodes: int = 2) -> tuple[Site, list[str]]:
        """Worker agents, each in a network namespace of its own, and their environments."""
        folder = self.scratch / f"{run.slug}-hosts"
        site = run.after.enter_context(Site(self.platform, folder, run.folder, run.slug, nodes))
        names = [host.node for host in site.hosts]
        run.nodes += names
        ids = {}
        for name in names:
            found = self.platform.get("/dev-environments", search=name)["items"]
            ids[name] = next(item["id"] for item in found if item["name"] == name)
        return site, [ids[name] for name in names]


def build_distributed_config(nodes: list[str]) -> dict[str, Any]:
    """The distributed configuration of those nodes, on a rendezvous port that nobody else has."""
    return {"nodeIds": nodes, "masterNode": nodes[0], "framework": "ddp", "masterPort": free_port()}
