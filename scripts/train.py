"""Train a small GPT with JAX on one process or on several: the reference trainer, in which `--batch_size` is the batch
of all processes together (`batch_size // jax.process_count()` of each). Every option: `--help`.

    python scripts/train.py --train_data_path train.bin --valid_data_path val.bin --batch_size 32
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1] / "platform")

try:
    from fermi.train.distributed import init_distributed_environment, init_logging
    from fermi.train.train_jax import main
except ModuleNotFoundError as missing:
    if __name__ != "__main__":
        raise
    sys.exit(f"train.py: {missing} for {sys.executable}. Install JAX beside the clone's packages and use its Python: "
             "`.venv/bin/pip install jax`, `.venv/bin/python scripts/train.py …`")  # fmt: skip

__all__ = ["init_distributed_environment", "init_logging"]

if __name__ == "__main__":
    sys.exit(main(["--batch_is_global", *sys.argv[1:]]))
