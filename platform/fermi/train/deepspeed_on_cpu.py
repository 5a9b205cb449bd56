"""DeepSpeed for ranks without CUDA: imported in its place, also where the ranks are forked from a process that has it.

DeepSpeed settles on an accelerator when it is imported; and on CPUs it compiles, at the first use, a shared-memory
all-reduce which inference alone calls. A kill in the middle of that leaves a lock on which every later run waits for
ever. So it is marked as not available (docs/decisions/0006), and all communication is gloo's.
"""

import os

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed.ops

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
