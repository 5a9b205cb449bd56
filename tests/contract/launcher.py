"""Starts the ranks of its node itself, as torchrun does: `launcher.py <code of a rank>`. Standard library only."""

import os
import subprocess
import sys

RANK_VARIABLES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"}
place = [os.environ[name] for name in ("NODE_RANK", "NNODES", "NPROC_PER_NODE", "PET_MASTER_PORT")]
print(
    "launcher",
    *place[:3],
    sorted(RANK_VARIABLES & os.environ.keys()),
    place[3] == os.environ["MASTER_PORT"],
    flush=True,
)
ranks = [
    subprocess.Popen([sys.executable, "-u", "-c", sys.argv[1]], env={**os.environ, "LOCAL_RANK": str(local)})
    for local in range(int(os.environ["NPROC_PER_NODE"]))
]
sys.exit(max(rank.wait() for rank in ranks))
