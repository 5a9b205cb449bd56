"""Trains a small GPT with JAX on one process or on several: the reference trainer, in which `--batch_size` is the batch
of all processes together (`batch_size // jax.process_count()` of each). Every option: `--help`.

    python scripts/train.py --train_data_path train.bin --valid_data_path val.bin --batch_size 32
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1] / "platform")

from fermi.train.distributed import init_distributed_environment, init_logging  # noqa: E402

__all__ = ["init_distributed_environment", "init_logging"]

if __name__ == "__main__":
    from fermi.train.train_jax import main

    sys.exit(main(["--batch_is_global", *sys.argv[1:]]))
