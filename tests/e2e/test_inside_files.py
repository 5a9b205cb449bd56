"""Files of tasks that run inside of dev environments which share no folder, with each other or the platform: dev pods
of a cluster, entered by `pods/exec`."""

import hashlib
import json
from collections.abc import Iterator

import pytest

from tests.e2e.dev_pods import DevPods
from tests.e2e.kubernetes_platform import SMALL
from tests.platform_process import Running
from tests.polling import until

pytestmark = pytest.mark.e2e
SETTINGS = {"FERMI_CARRIED_FOLDER_GB": "1"}

TRAIN = """
import json, os, signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank, attempt = int(os.environ["RANK"]), int(os.environ["FERMI_ATTEMPT"])
folder, output = Path(os.environ["FERMI_CHECKPOINT_DIR"]), Path(os.environ["FERMI_OUTPUT_DIR"])
dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
start = 0
if found := sorted(folder.glob("step-*")):
    shards = sorted(path.name for path in found[-1].glob("shard-*"))
    said = torch.load(found[-1] / "weights.pt")
    model.load_state_dict(said["model"])
    start = said["step"]
    print("resumed", start, *shards, round(sum(p.sum().item() for p in model.parameters()), 6), flush=True)
for step in range(start + 1, 7):
    loss = model(torch.ones(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    here = folder / f"step-{step}"
    here.mkdir(parents=True, exist_ok=True)
    (here / f"shard-{rank}").write_text(str(step))
    if rank == 0:
        torch.save({"step": step, "model": model.state_dict()}, here / "new")
        (here / "new").rename(here / "weights.pt")
    dist.barrier()
    if rank == 0:
        print(json.dumps({"event": "checkpoint", "step": step, "path": str(here)}), flush=True)
        print(json.dumps({"step": step, "loss": loss.item()}), flush=True)
        print("weights", step, round(sum(p.sum().item() for p in model.parameters()), 6), flush=True)
    dist.barrier()
    if attempt == 1 and step == 3 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
output.mkdir(parents=True, exist_ok=True)
(output / f"report-{rank}.txt").write_text(f"rank {rank} has ended")
Path("beside").mkdir(exist_ok=True)
Path("beside", f"{rank}.txt").write_text("written beside the script")
dist.destroy_process_group()
os._exit(0)
"""

BIG = """
import hashlib, os, time
from pathlib import Path

folder = Path(os.environ["FERMI_CHECKPOINT_DIR"])
folder.mkdir(parents=True, exist_ok=True)
data = os.urandom(300 << 20)
(folder / "big.pt").write_bytes(data)
with open(folder / "huge.pt", "wb") as file:
    file.truncate((1 << 30) + 1)
print("sha256", hashlib.sha256(data).hexdigest(), flush=True)
Path(os.environ["FERMI_OUTPUT_DIR"]).mkdir(parents=True, exist_ok=True)
Path(os.environ["FERMI_OUTPUT_DIR"], "report.txt").write_text("until it was stopped")
number = 0
while True:
    number += 1
    print("line", number, flush=True)
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def lab(platform: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevPods]:
    made = DevPods(platform, tmp_path_factory.mktemp("lab"))
    try:
        for name in ("first", "second"):
            made.add(name)
        made.connect()
        yield made
    finally:
        made.close()


def lines(text: str, word: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"{word} ")]


def test_all_ranks_resume_from_one_ranks_checkpoint(lab: DevPods) -> None:
    """Rank 0 saves the weights, each rank a shard of its own; both load all of it, on nodes that share nothing."""
    platform = lab.platform
    task = lab.create(lab.request(TRAIN))
    ended = platform.until_final(task)
    assert ended["status"] == "succeeded", (ended, platform.log(task, 0, 2), platform.log(task, 1, 2))
    assert ended["attempt"] == 2
    (weights,) = {line.split()[2] for line in lines(platform.log(task), "weights") if line.split()[1] == "3"}
    for rank in range(2):
        assert lines(platform.log(task, rank, attempt=2), "resumed") == [f"resumed 3 shard-0 shard-1 {weights}"]
    folder = platform.data / "checkpoints" / task
    assert sorted(path.name for path in (folder / "step-6").iterdir()) == ["shard-0", "shard-1", "weights.pt"]
    assert next(one["step"] for one in platform.items(task, "checkpoints")) == 6
    written = {one["path"] for one in platform.items(task, "outputs")}
    assert {"report-0.txt", "report-1.txt", "beside"} <= written
    beside = platform.api.get(f"/training-tasks/{task}/outputs", params={"path": "beside"}).json()["data"]["items"]
    assert {one["path"] for one in beside} == {"beside/0.txt", "beside/1.txt"}


def test_an_interrupted_large_file_resumes_while_logs_flow(lab: DevPods) -> None:
    platform = lab.platform
    task = lab.create(lab.request(BIG, lab.ids[1]))
    folder = platform.data / "checkpoints"

    def size() -> int:
        parts = [*(folder / ".arriving").glob(f"{task}-*")]
        return parts[0].stat().st_size if parts else 0

    until(size, what="the file arrives")
    logged = len(platform.log(task))
    assert until(lambda: len(platform.log(task)) > logged and size(), what="lines are told meanwhile")
    lab.cluster.break_connections()
    before = size()
    assert 0 < before < 300 << 20
    until(lambda: size() > before, what="it goes on where it was cut off")
    platform.kill("watch")
    before = size()
    assert 0 < before < 300 << 20
    until(lambda: size() >= before, what="it is still there")
    came = folder / task / "big.pt"
    until(came.exists, what="all of it is here")
    (digest,) = lines(platform.log(task), "sha256")
    assert hashlib.sha256(came.read_bytes()).hexdigest() == digest.split()[1]
    left_out = [one for one in platform.items(task, "events") if one["code"] == "INSIDE_FILES_TOO_LARGE"]
    assert [(one["params"]["path"], one["params"]["limit"]) for one in left_out] == [("checkpoints/huge.pt", "1 GiB")]
    lab.send("POST", f"/training-tasks/{task}/stop")
    assert platform.until_final(task)["status"] == "stopped"
    assert [path.name for path in came.parent.iterdir()] == ["big.pt"]
    assert (platform.data / "outputs" / task / "report.txt").read_text() == "until it was stopped"


def test_a_dataset_is_sent_and_another_task_resumes_from_the_result(lab: DevPods) -> None:
    """The recipe's trainer, on data of the platform that the dev pods do not mount. The retry is a task of its own."""
    config = {"nodeIds": lab.ids, "masterNode": lab.ids[0], "framework": "ddp", "runIn": "environment"}
    request = lab.platform.request(lab.ids, hyperparameters={**SMALL, "checkpointEvery": 2}, distributedConfig=config)
    warned = {one["code"] for one in lab.send("POST", "/training-tasks/preview", **request)["warnings"]}
    assert "INSIDE_NOT_SHARED" in warned
    task = lab.create(request)
    assert lab.platform.until_final(task)["status"] == "succeeded", lab.platform.log(task)
    newest = next(iter(lab.platform.items(task, "checkpoints")))
    assert newest["path"].startswith(f"{lab.platform.data}/checkpoints/{task}/")
    longer = {**request, "hyperparameters": {**SMALL, "totalSteps": 8}, "resumeFrom": newest["path"]}
    again = lab.create(longer)
    assert lab.platform.until_final(again)["status"] == "succeeded", lab.platform.log(again)
    for rank in range(2):
        log = lab.platform.log(again, rank)
        assert (
            rank or json.loads(next(line for line in log.splitlines() if '"resumed"' in line))["step"] == newest["step"]
        )
