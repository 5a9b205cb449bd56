"""Test this machine, or several together, before training: variables, devices, network, communication.

python scripts/test_distributed.py
python scripts/test_distributed.py --nnodes 2 --node-rank 0 --master-addr 192.168.1.100     on each of two nodes
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from scripts.by_hand import exec_fermi  # noqa: E402

if __name__ == "__main__":
    exec_fermi("preflight", *sys.argv[1:])
