import os
import subprocess
import sys

node, address, port = (os.environ[name] for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT"))
launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=2"]
place = [f"--node_rank={node}", f"--master_addr={address}", f"--master_port={port}"]
sys.exit(subprocess.call([*launcher, *place, "train.py"]))
