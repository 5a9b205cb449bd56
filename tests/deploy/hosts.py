"""Hosts of a bare-metal cluster: containers in which `fermi worker` runs, beside the platform's."""

import sys

from tests.deploy.compose import Api, Compose
from tests.deploy.images import BASE
from tests.platform_process import ROOT
from tests.polling import until

TRAIN = """
import json, os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, folder = dist.get_rank(), os.environ["FERMI_CHECKPOINT_DIR"]
weight, step = torch.zeros(4), 0
if resume := os.environ["FERMI_RESUME_FROM"]:
    saved = torch.load(resume)
    weight, step = saved["weight"], saved["step"]
    print(json.dumps({"event": "resumed", "step": step}), flush=True)
print("rank", rank, "of", dist.get_world_size(), "on", os.uname().nodename, flush=True)
ended = torch.zeros(1)
while not ended.item():
    step += 1
    weight += 1
    dist.all_reduce(weight)
    weight /= dist.get_world_size()
    if rank == 0:
        print(json.dumps({"step": step, "loss": 1 / step}), flush=True)
        if step % 10 == 0:
            os.makedirs(folder, exist_ok=True)
            path = f"{folder}/step-{step}.pt"
            torch.save({"weight": weight, "step": step}, f"{path}.partial")
            os.replace(f"{path}.partial", path)
            print(json.dumps({"event": "checkpoint", "step": step, "path": path}), flush=True)
    ended = torch.tensor([float(os.path.exists("finish"))])
    dist.all_reduce(ended, op=dist.ReduceOp.MAX)
    time.sleep(0.05)  # a step of a model
del weight
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""


def seen(*volumes: str) -> list[str]:
    """Options that show a container this checkout and its packages, where they are here, and `volumes`."""
    folders = [f"{folder}:{folder}:ro" for folder in (ROOT, sys.base_prefix, sys.prefix)]
    return [word for volume in (*folders, *volumes) for word in ("--volume", volume)]


class Hosts:
    """Each sees the platform's data volume, as hosts see a shared file system."""

    def __init__(self, platform: Compose) -> None:
        self.platform = platform
        self.workspace = platform.folder / "workspace"
        self.workspace.mkdir()
        self.workspace.chmod(0o777)
        (self.workspace / "train.py").write_text(TRAIN)
        self.containers: list[str] = []

    def start(self, api: Api, *nodes: str) -> None:
        token = api.post("/workers/join-tokens", {"name": "lab", "projectId": api.project})["token"]
        command = [sys.executable, "-m", "fermi.cli", "worker", "--server", "http://web:8000", "--token", token,
                   "--gpus", "0", "--emulate", "--state", "/state", "--workspace", "/workspace"]  # fmt: skip
        volumes = seen(f"{self.platform.project}_data:/data", f"{self.workspace}:/workspace")
        for node in nodes:
            options = ["--detach", "--init", "--hostname", node, "--network", self.platform.network, *volumes]
            options += ["--env", f"PYTHONPATH={ROOT / 'platform'}"]
            started = self.platform.engine.docker("run", *options, BASE, *command, "--node", node)
            self.containers.append(started)

    def train(self, api: Api, *nodes: str) -> str:
        """A task on them, once they are there: the script trains until `finish`."""
        (self.workspace / "finish").unlink(missing_ok=True)

        def found() -> list[str] | None:
            rows = {row["name"]: row["id"] for row in api.get("/dev-environments", status="running")["items"]}
            return [rows[node] for node in nodes] if rows.keys() >= set(nodes) else None

        ids = until(found, seconds=180, what=f"{nodes} are environments")
        task_id: str = api.post("/training-tasks", {
            "taskName": "through containers", "launchMode": "existing",
            "datasetId": None, "datasetVersionId": None, "modelId": None,
            "entrypoint": {"script": "train.py"},
            "distributedConfig": {"nodeIds": ids, "masterNode": ids[0], "framework": "ddp"},
        })["taskId"]  # fmt: skip
        api.until_status(task_id, "running")
        return task_id

    def finish(self) -> None:
        """Lets the script that trains come to its end."""
        (self.workspace / "finish").touch()

    def close(self) -> None:
        for container in self.containers:
            self.platform.engine.docker("rm", "--force", "--volumes", container, check=False)
