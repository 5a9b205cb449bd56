"""The reference trainer under the name by which guides start it on several machines, once on each:

    torchrun --nnodes=2 --node_rank=0 --nproc_per_node=8 --master_addr=192.168.1.1 --master_port=29500 \\
        set_distributed.py --distributed --train_data_path train.bin --valid_data_path val.bin
"""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("train_distributed.py")), run_name="__main__")
