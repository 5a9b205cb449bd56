"""Starts training by hand on this machine, on several, or through Slurm: `fermi launch` with the training script
scripts/train.py, unless a command stands behind `--`.

    FERMI_TRAIN_DATA=train.bin python scripts/run_distributed.py --mode manual --world-size 4
    python scripts/run_distributed.py --mode manual --rank 0 --world-size 8 --master-addr 192.168.1.100
    python scripts/run_distributed.py --mode create_slurm --num-nodes 2
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # in place of this folder, whose names are those of other modules

from scripts.by_hand import exec_fermi  # noqa: E402


def complete_arguments(words: list[str]) -> list[str]:
    """Return the arguments of `fermi launch`."""
    command = [] if "--" in words or "--help" in words else ["--", "python", str(ROOT / "scripts" / "train.py")]
    return ["launch", *words, *command]


if __name__ == "__main__":
    exec_fermi(*complete_arguments(sys.argv[1:]))
