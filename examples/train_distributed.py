"""The reference trainer under the name by which guides for DistributedDataParallel call it. All ways to start work:

python train_distributed.py --train_data_path train.bin --valid_data_path val.bin
python train_distributed.py --distributed --world_size 4 ...
torchrun --nproc_per_node=4 train_distributed.py --distributed ...
python -m torch.distributed.launch --nproc_per_node=4 train_distributed.py --distributed ...

Started by hand, rank 0 also adds its lines to train.log (`tail -f train.log`).
"""

import os
import sys

try:
    from fermi.train.train_ddp import main, run_and_exit
except ModuleNotFoundError as missing:
    sys.exit(f"train_distributed.py: {missing} for {sys.executable}. Use the clone's Python after `make up`: "
             "`.venv/bin/python train_distributed.py …`; or install the packages: `pip install . torch`")  # fmt: skip

if __name__ == "__main__":
    log = [] if "FERMI_TASK_ID" in os.environ else ["--log_file", "train.log"]  # a task's lines are kept already
    run_and_exit(main, [*log, *sys.argv[1:]])
