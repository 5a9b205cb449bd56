"""For tests on machines without CUDA: tensors that are asked onto a GPU stay on the CPU, NCCL is gloo. Lets
megatron-core's schedules run as they are. Takes effect where this folder is on PYTHONPATH; nothing in the product
knows of it. Does nothing where there is a GPU."""

from collections import defaultdict
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


def on_cpu(value: Any) -> Any:
    return CPU if isinstance(value, (str, torch.device)) and str(value).startswith("cuda") else value


class CudaOnCpu(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:
            return on_cpu(func(*args, **(kwargs or {})))
        if func is torch.Tensor.type and len(args) == 1:
            return func(*args).replace("torch.", "torch.cuda.")
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        kwargs = {name: on_cpu(value) for name, value in (kwargs or {}).items()}
        return func(*map(on_cpu, args), **kwargs)


def install() -> None:
    """Every name gets a function of its own: torch's compiler keeps a table of them."""
    cuda = torch.cuda
    cuda.is_available, cuda.device_count = lambda: True, lambda: 64
    cuda.current_device, cuda.get_device_capability = lambda: CPU, lambda *_: (8, 0)
    cuda._lazy_init, cuda._lazy_call = lambda: None, lambda call, **_: call()
    cuda.set_device, cuda.synchronize = lambda *_: None, lambda *_: None
    cuda.get_rng_state, cuda.manual_seed = lambda *_, **__: torch.get_rng_state(), partial(torch.manual_seed)
    cuda.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.default_generators = defaultdict(lambda: torch.default_generator)
    torch.compile = lambda function=None, **_: function or (lambda decorated: decorated)
    join, barrier, isend = dist.init_process_group, dist.barrier, dist.isend
    dist.init_process_group = lambda backend, device_id=None, **rest: join("gloo", **rest)
    dist.barrier = lambda group=None, async_op=False, device_ids=None: barrier(group, async_op)
    # megatron-core frees what it sends before it has waited, trusting in the order of a CUDA stream
    dist.isend = dist.distributed_c10d.isend = lambda tensor, *args, **rest: isend(tensor.clone(), *args, **rest)
    CudaOnCpu().__enter__()


if not torch.cuda.is_available():
    install()
