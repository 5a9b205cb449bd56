"""The reference trainer under the name by which guides start it on several machines, once on each:

    torchrun --nnodes=2 --node_rank=0 --nproc_per_node=8 --master_addr=192.168.1.1 --master_port=29500 \\
        set_distributed.py --distributed --train_data_path train.bin --valid_data_path val.bin
"""

import os
import sys

from fermi.train.train_ddp import main, run_and_leave

if __name__ == "__main__":
    log = [] if "FERMI_TASK_ID" in os.environ else ["--log_file", "train.log"]  # a task's lines are kept already
    run_and_leave(main, [*log, *sys.argv[1:]])
