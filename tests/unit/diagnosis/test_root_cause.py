"""Log tails as libraries print them → what is found. The wording is that of the libraries' own sources: PyTorch
(c10/cuda, torch/csrc/distributed, torch/utils/data, torch/serialization.py), gloo/transport/tcp, NCCL's src/misc and
src/transport, XLA, DeepSpeed, Megatron-LM, Horovod, transformers, huggingface_hub, wandb, CPython, glibc, Slurm."""

# ruff: noqa: E501  lines stand as they are printed

import random
import string
from typing import Any

import pytest

from fermi import messages
from fermi.diagnosis import root_cause, rules, tracebacks
from fermi.jobs.spec import RankStatus

NAMES = ["gn5", "gn6"]
OWN_FRAME = '  File "/work/train.py", line 88, in forward\n    out = self.layer(x)\n          ^^^^^^^^^^^^^\n'


def raised(exception: str) -> str:
    """As Python prints it, through a library."""
    library = '  File "/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1751, in _call_impl\n'
    return f"Traceback (most recent call last):\n{OWN_FRAME}{library}    return forward_call()\n{exception}\n"


def accelerator(said: str, name: str) -> str:
    """As torch 2.8 and later raise an error of the CUDA runtime (c10/cuda/CUDAException.cpp)."""
    return (
        f"torch.AcceleratorError: CUDA error: {said}\nSearch for `{name}' in "
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
        "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )


def nccl(what: str, said: str, last: str) -> str:
    """As torch raises an error of NCCL (torch/csrc/distributed/c10d/NCCLUtils.cpp)."""
    where = "/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690"
    return f"torch.distributed.DistBackendError: NCCL error in: {where}, {what}, NCCL version 2.28.9\n{said}\nLast error:\n{last}"


COUNTING = "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error?"


def explain_log(log: str, *, exit_code: int = 1, **more: Any) -> root_cause.RankFailure | None:
    seen = RankStatus(0, 0, "exited", exit_code=exit_code, ended_at=10.0, **more)
    return root_cause.explain_failure([seen], 0, NAMES, lambda rank: log.encode(), addresses={"10.0.0.2": "gn6"})


KNOWN: list[tuple[str, str, dict[str, str]]] = [
    ("CUDA_OUT_OF_MEMORY", raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.12 GiB is free. Including non-PyTorch memory, this process has 77.00 GiB memory in use. Of the allocated memory 70.10 GiB is allocated by PyTorch, and 5.12 GiB is reserved by PyTorch but unallocated."), {"tried": "2.00 GiB", "free": "1.12 GiB", "unallocated": "5.12 GiB"}),
    ("CUDA_OUT_OF_MEMORY", raised("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 11.17 GiB total capacity; 10.50 GiB already allocated; 19.00 MiB free; 10.62 GiB reserved in total by PyTorch)"), {"gpu": "1", "free": "19.00 MiB"}),
    ("CUDA_OUT_OF_MEMORY", raised("RuntimeError: CUDA error: out of memory"), {}),
    ("CUDA_OUT_OF_MEMORY", raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 14.57 GiB of which 1.58 GiB is free. Process 2493055 has 12.02 GiB memory in use. Including non-PyTorch memory, this process has 966.00 MiB memory in use. Of the allocated memory 734.07 MiB is allocated by PyTorch, and 33.93 MiB is reserved by PyTorch but unallocated."), {"holder": "2493055", "held": "12.02 GiB", "free": "1.58 GiB"}),
    ("CUDA_OUT_OF_MEMORY", raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 70.58 GiB is free. Including non-PyTorch memory, this process has 966.00 MiB memory in use. 3.96 GiB allowed; Of the allocated memory 734.07 MiB is allocated by PyTorch, and 33.93 MiB is reserved by PyTorch but unallocated."), {"allowed": "3.96 GiB"}),
    ("CUDA_OUT_OF_MEMORY", raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 139.80 GiB of which 1.58 GiB is free. Process 2493055 has 512.00 MiB memory in use. Process 2493056 has 118.02 GiB memory in use. Process 2493057 has 9.50 GiB memory in use. Process 2493058 has 1020.00 MiB memory in use. Including non-PyTorch memory, this process has 966.00 MiB memory in use. Of the allocated memory 734.07 MiB is allocated by PyTorch, and 33.93 MiB is reserved by PyTorch but unallocated."), {"holder": "2493056", "held": "118.02 GiB", "free": "1.58 GiB"}),
    ("CUDA_OUT_OF_MEMORY", raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 10.12 MiB is free. Including non-PyTorch memory, this process has 79.00 GiB memory in use. Of the allocated memory 70.07 GiB is allocated by PyTorch, with 2.00 GiB allocated in private pools (e.g., CUDA Graphs), and 133.93 MiB is reserved by PyTorch but unallocated."), {"unallocated": "133.93 MiB"}),
    ("CUDA_OUT_OF_MEMORY", raised(nccl("unhandled cuda error (run with NCCL_DEBUG=INFO for details)", "ncclUnhandledCudaError: Call to CUDA function failed.", "Cuda failure 2 'out of memory'")), {}),
    ("CUDA_LIBRARY_FAILED", raised("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb, m, n, k)`"), {}),
    ("CUDA_LIBRARY_FAILED", raised("RuntimeError: GET was unable to find an engine to execute this computation"), {}),
    ("CUDA_GRAPH_CAPTURE", raised(accelerator("operation not permitted when stream is capturing", "cudaErrorStreamCaptureUnsupported")), {}),
    ("JAX_OUT_OF_MEMORY", raised("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 160.00GiB (171798691840B) on device ordinal 0"), {"tried": "160.00GiB"}),
    ("GPU_NUMBER_WRONG", raised(nccl("invalid usage (run with NCCL_DEBUG=WARN for details)", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000")), {"one": "1", "other": "0", "device": "1000"}),
    ("GPU_NUMBER_WRONG", "[2026-01-05 10:00:00] gn5:77:90 [0] init.cc:1010 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\n" + raised(nccl("invalid usage (run with NCCL_DEBUG=WARN for details)", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000")), {"one": "0", "other": "1"}),
    ("NCCL_NO_INTERFACE", raised(nccl("invalid usage (run with NCCL_DEBUG=WARN for details)", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "Bootstrap : no socket interface found")), {}),
    ("BACKEND_WITHOUT_DEVICE", raised("RuntimeError: No backend type associated with device type cpu"), {"device": "cpu"}),
    ("DEVICE_ASSERT", "/pytorch/aten/src/ATen/native/cuda/Loss.cu:251: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [5,0,0] Assertion `t >= 0 && t < n_classes` failed.\n" + raised(accelerator("device-side assert triggered", "cudaErrorAssert")), {"condition": "t >= 0 && t < n_classes"}),
    ("ILLEGAL_MEMORY_ACCESS", raised(accelerator("an illegal memory access was encountered", "cudaErrorIllegalAddress")), {}),
    ("ILLEGAL_MEMORY_ACCESS", raised(accelerator("an illegal instruction was encountered", "cudaErrorIllegalInstruction")), {}),
    ("ILLEGAL_MEMORY_ACCESS", raised(accelerator("hardware stack error", "cudaErrorHardwareStackError")), {}),
    ("ILLEGAL_MEMORY_ACCESS", raised("RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered"), {}),
    ("KERNEL_TIMED_OUT", raised(accelerator("the launch timed out and was terminated", "cudaErrorLaunchTimeout")), {}),
    ("KERNEL_TOO_LARGE", raised("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 262144, Hardware limit: 232448. Reducing block sizes or `num_stages` may help."), {"required": "262144", "limit": "232448"}),
    ("GPU_LINK_FAILED", raised(accelerator("uncorrectable NVLink error detected during the execution", "cudaErrorNvlinkUncorrectable")), {}),
    ("DRIVER_LIBRARY_WRONG", raised(f"RuntimeError: {COUNTING} Error 803: system has unsupported display driver / cuda driver combination"), {}),
    ("DRIVER_LIBRARY_WRONG", raised(f"RuntimeError: {COUNTING} Error 34: CUDA driver is a stub library"), {}),
    ("DRIVER_LIBRARY_WRONG", raised("ImportError: /work/empty/libcuda.so.1: file too short"), {}),
    ("DRIVER_TOO_OLD", raised(f"RuntimeError: {COUNTING} Error 36: API call is not supported in the installed CUDA driver"), {}),
    ("NO_GPU_VISIBLE", raised(f"RuntimeError: {COUNTING} Error 802: system not yet initialized"), {}),
    ("NO_GPU_VISIBLE", raised("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero."), {}),
    ("NO_GPU_VISIBLE", raised("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!"), {}),
    ("CUDA_LIBRARY_OUT_OF_MEMORY", raised("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), {}),
    ("JAX_OUT_OF_MEMORY", raised("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes."), {"tried": "17179869184 bytes"}),
    ("HOST_MEMORY_ERROR", raised("RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 40960000000 bytes. Error code 12 (Cannot allocate memory)"), {"tried": "40960000000 bytes"}),
    ("HOST_MEMORY_ERROR", raised("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 37.3 GiB for an array with shape (100000, 50000) and data type float64"), {"tried": "37.3 GiB"}),
    ("MEMORY_LIMIT_REACHED", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=4711.0. Some of the step tasks have been OOM Killed.\n", {}),
    ("SHARED_MEMORY_TOO_SMALL", raised("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit."), {}),
    ("SHARED_MEMORY_TOO_SMALL", "gn5:77:90 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-a1 to 33030528 bytes\ngn5:77:90 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a1 (size 33030400)\n" + raised("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.19.3"), {"path": "/dev/shm/nccl-a1"}),
    ("DATALOADER_WORKER_KILLED", raised("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed."), {"pid": "4711"}),
    ("DATALOADER_WORKER_KILLED", raised("RuntimeError: DataLoader worker (pid(s) 4711, 4712) exited unexpectedly"), {"pids": "4711, 4712"}),
    ("DATALOADER_TIMED_OUT", raised("RuntimeError: DataLoader timed out after 30 seconds"), {"seconds": "30"}),
    ("SAMPLES_DIFFER_IN_SIZE", raised("RuntimeError: stack expects each tensor to be equal size, but got [3, 224, 224] at entry 0 and [1, 224, 224] at entry 5"), {"one": "[3, 224, 224]", "other": "[1, 224, 224]"}),
    ("INDEX_NOT_IN_EMBEDDING", raised("IndexError: index out of range in self"), {}),
    ("CLASS_OUT_OF_BOUNDS", raised("IndexError: Target 10 is out of bounds."), {"target": "10"}),
    ("GPU_MEMORY_DAMAGED", raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"), {}),
    ("GPU_XID", "kernel: NVRM: Xid (PCI:0000:3b:00): 32, pid=4711, name=python, Channel 0\n", {"xid": "32"}),
    ("GPU_LOST", "kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has failed\n", {"pci": "PCI:0000:3b:00"}),
    ("GPU_STOPPED", "NVRM: Xid (PCI:0000:3b:00): 119, pid=1, name=x, Timeout waiting for RPC from GSP0!\n", {}),
    ("GPU_WORK_ENDED", "NVRM: Xid (PCI:0000:3b:00): 45, pid=4711, name=python, Ch 00000008\n", {}),
    ("GPU_LOST", "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n", {}),
    ("GPU_BUSY", raised("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"), {}),
    ("DEVICE_ASSERT", "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [12,0,0], thread: [3,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n" + raised("RuntimeError: CUDA error: device-side assert triggered"), {"condition": "srcIndex < srcSelectDimSize"}),
    ("ILLEGAL_MEMORY_ACCESS", raised("RuntimeError: CUDA error: an illegal memory access was encountered"), {}),
    ("NO_KERNEL_FOR_GPU", "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n" + raised("RuntimeError: CUDA error: no kernel image is available for execution on the device"), {"capability": "120"}),
    ("DRIVER_TOO_OLD", raised("RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"), {"found": "11040"}),
    ("NO_GPU_VISIBLE", raised("RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"), {}),
    ("GPU_NUMBER_WRONG", raised("RuntimeError: CUDA error: invalid device ordinal"), {}),
    ("GPU_NUMBER_WRONG", raised("RuntimeError: Attempting to deserialize object on CUDA device 7 but torch.cuda.device_count() is 2. Please use torch.load with map_location"), {"device": "7", "count": "2"}),
    ("CUDA_AFTER_FORK", raised("RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method"), {}),
    ("NCCL_NETWORK", "gn5:88:99 [0] misc/socket.cc:567 NCCL WARN socketStartConnect: Connect to 10.0.0.2<40637> failed : Connection refused\n" + raised("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."), {"peer": "10.0.0.2", "peerNode": "gn6"}),
    ("NCCL_REMOTE_ENDED", raised("torch.distributed.DistBackendError: NCCL error, ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."), {}),
    ("COLLECTIVE_TIMED_OUT", "[rank0]:[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=417, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n", {"seq": "417", "op": "ALLREDUCE"}),
    ("GLOO_PEER_GONE", raised("RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:17045"), {"peer": "10.0.0.2", "peerNode": "gn6", "port": "17045"}),
    ("STORE_UNREACHABLE", raised("torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.0.0.2, 29500)."), {"peer": "10.0.0.2", "port": "29500"}),
    ("STORE_UNREACHABLE", raised("torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 3/4 clients joined."), {"joined": "3", "expected": "4"}),
    ("STORE_GONE", raised("torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cuda//0"), {"keys": "/default_pg/0//cuda//0"}),
    ("PORT_IN_USE", raised("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"), {"port": "29500"}),
    ("PORT_IN_USE", raised("OSError: [Errno 98] Address already in use"), {}),
    ("PORT_IN_USE", raised("OSError: [Errno 98] Address already in use (while attempting to bind on address ('', 8000))"), {"port": "8000"}),
    ("PORT_IN_USE", "E1127 10:08:40.130681   12695 add_port.cc:83] Failed to add port to server: No address added out of total 1 resolved for '[::]:38671'\n", {"port": "38671"}),
    ("NAME_NOT_RESOLVED", raised("socket.gaierror: [Errno -2] Name or service not known"), {}),
    ("HOROVOD_SHUT_DOWN", raised("horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception on one of the ranks"), {}),
    ("GROUP_NOT_INITIALIZED", raised("ValueError: Default process group has not been initialized, please make sure to call init_process_group."), {}),
    ("NO_SPACE_LEFT", raised("OSError: [Errno 28] No space left on device: '/ckpt/step-10.tmp'"), {"path": "/ckpt/step-10.tmp"}),
    ("DISK_QUOTA_USED_UP", raised("OSError: [Errno 122] Disk quota exceeded: '/home/me/x'"), {"path": "/home/me/x"}),
    ("PERMISSION_DENIED", raised("PermissionError: [Errno 13] Permission denied: '/data/private'"), {"path": "/data/private"}),
    ("FILE_MISSING", raised("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'"), {"path": "/data/train.bin"}),
    ("FILE_MISSING", "python: can't open file '/work/trian.py': [Errno 2] No such file or directory\n", {"path": "/work/trian.py"}),
    ("READ_ONLY", raised("OSError: [Errno 30] Read-only file system: '/data/cache'"), {"path": "/data/cache"}),
    ("STORAGE_FAILS", raised("OSError: [Errno 116] Stale file handle"), {}),
    ("TOO_MANY_OPEN_FILES", raised("OSError: [Errno 24] Too many open files: '/data/1.npy'"), {}),
    ("TOO_MANY_THREADS", raised("RuntimeError: can't start new thread"), {}),
    ("MODULE_MISSING", raised("ModuleNotFoundError: No module named 'flash_attn'"), {"module": "flash_attn"}),
    ("NAME_NOT_IN_MODULE", raised("ImportError: cannot import name 'AdamW' from 'transformers' (/env/lib/python3.11/site-packages/transformers/__init__.py)"), {"name": "AdamW", "module": "transformers"}),
    ("LIBRARY_MISSING", raised("ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory"), {"library": "libcudnn.so.8"}),
    ("SYMBOL_UNDEFINED", raised("ImportError: /env/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"), {"symbol": "_ZN3c104cuda9SetDeviceEi"}),
    ("SYSTEM_LIBRARY_TOO_OLD", raised("ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by x.so)"), {"version": "GLIBC_2.34"}),
    ("NUMPY_MISMATCH", raised("ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject"), {}),
    ("TORCH_PARTS_MISMATCH", raised("RuntimeError: operator torchvision::nms does not exist"), {}),
    ("CUDA_MISMATCH", raised("RuntimeError: \nThe detected CUDA version (11.8) mismatches the version that was used to compile\nPyTorch (12.1)."), {"found": "11.8"}),
    ("EXTENSION_NOT_BUILT", raised("RuntimeError: Error building extension 'fused_adam'"), {"name": "fused_adam"}),
    ("ARGUMENTS_REFUSED", "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --local-rank=0\n", {"arguments": "--local-rank=0"}),
    ("WANDB_LOGIN", raised("wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])"), {}),
    ("HUB_GATED", raised("OSError: You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/meta-llama/Llama-3"), {}),
    ("HUB_UNREACHABLE", raised("OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files."), {"host": "huggingface.co"}),
    ("HUB_UNKNOWN", raised("OSError: lama-7b is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'"), {}),
    ("CHECKPOINT_TORN", raised("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"), {"detail": "reading zip archive: failed finding central directory"}),
    ("CHECKPOINT_DOES_NOT_FIT", raised('RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for head.weight: copying a param with shape torch.Size([10, 64]) from checkpoint, the shape in current model is torch.Size([12, 64]).'), {"model": "Net", "key": "head.weight"}),
    ("CHECKPOINT_WORLD_SIZE", raised("deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world size of 8 but the current world size is 4. Automatic adjustment of ZeRO's optimizer state partitioning with a new world size is not currently supported."), {"found": "8", "expected": "4"}),
    ("CHECKPOINT_HAS_OBJECTS", raised("_pickle.UnpicklingError: Weights only load failed. This file can still be loaded"), {}),
    ("TOKENIZER_MISSING", raised("OSError: Can't load tokenizer for '/models/llama'. If you were trying to load it from 'https://huggingface.co/models', make sure"), {"name": "/models/llama"}),
    ("SHAPES_DO_NOT_FIT", raised("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x7 and 8x2)"), {"one": "4x7", "other": "8x2"}),
    ("DTYPES_DIFFER", raised("RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16"), {"one": "Float", "other": "BFloat16"}),
    ("DEVICES_DIFFER", raised("RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"), {"one": "cuda:0", "other": "cpu"}),
    ("UNUSED_PARAMETERS", raised("RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss."), {}),
    ("BACKWARD_NOT_POSSIBLE", raised("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"), {}),
    ("VALUES_NOT_FINITE", raised("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."), {}),
    ("DEEPSPEED_BATCH", raised("AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 4 * 1 * 4"), {"total": "32", "world": "4"}),
    ("MEGATRON_BATCH_UNEVEN", raised("AssertionError: global batch size (30) is not divisible by micro batch size (4) times data parallel size (4)"), {"batch": "30"}),
    ("PROCESSES_AT_IMPORT", raised("RuntimeError: \n        An attempt has been made to start a new process before the\n        current process has finished its bootstrapping phase."), {}),
    ("SEGMENTATION_FAULT", 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f1 (most recent call first):\n  File "/work/train.py", line 88 in forward\n', {}),
    ("HEAP_CORRUPTED", "double free or corruption (!prev)\n", {}),
    ("TORCH_WITHOUT_CUDA", raised("AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'"), {}),
    ("TORCH_WITHOUT_CUDA", raised("RuntimeError: Distributed package doesn't have NCCL built in"), {}),
    ("BACKEND_NOT_BUILT", raised("RuntimeError: Distributed package doesn't have MPI built in. MPI is only included if you build PyTorch from source on a host that has MPI installed."), {"backend": "MPI"}),
    ("LOCAL_RANK_REQUIRED", "usage: train.py [-h] --local_rank LOCAL_RANK\ntrain.py: error: the following arguments are required: --local_rank\n", {}),
    ("LOCAL_RANK_REQUIRED", "usage: train.py [-h]\ntrain.py: error: the following arguments are required: --data, --local-rank/--local_rank\n", {}),
    ("ARGUMENTS_REFUSED", "usage: train.py [-h]\ntrain.py: error: the following arguments are required: --data\n", {"arguments": "--data"}),
    ("MODULE_MISSING", raised("ModuleNotFoundError: Requirement 'demo[extra]>=1.2' not met. HINT: Try running `pip install -U demo[extra]`"), {"module": "demo[extra]>=1.2"}),
    ("PACKAGES_REQUIRED", raised("ImportError: Using `load_in_8bit=True` requires Accelerate: `pip install accelerate`"), {"packages": "accelerate"}),
    ("VARIABLE_NOT_SET", raised("KeyError: 'SLURM_PROCID'").replace("KeyError", '  File "<frozen os>", line 679, in __getitem__\nKeyError'), {"variable": "SLURM_PROCID", "slurm": "PROCID"}),
    ("VARIABLE_NOT_SET", raised("KeyError: 'OMPI_COMM_WORLD_RANK'").replace("KeyError", '  File "/usr/lib/python3.10/os.py", line 680, in __getitem__\n    raise KeyError(key) from None\nKeyError'), {"mpi": "COMM_WORLD_RANK"}),
    ("VARIABLE_NOT_SET", raised("KeyError: 'DATA_ROOT'").replace("KeyError", '  File "<frozen os>", line 679, in __getitem__\nKeyError'), {"variable": "DATA_ROOT"}),
    ("VARIABLE_NOT_SET", 'Traceback (most recent call last):\n  File "/work/train.py", line 88, in forward\n    rank = int(os.environ.get("SLURM_PROCID"))\nTypeError: int() argument must be a string, a bytes-like object or a real number, not \'NoneType\'\n', {"slurm": "PROCID"}),
    ("DOWNLOAD_FAILED", raised("urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>"), {}),
    ("DOWNLOAD_FAILED", raised("httpx.ConnectError: [Errno -2] Name or service not known"), {}),
    ("DOWNLOAD_FAILED", raised("aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host s3.example.org:443 ssl:default [Temporary failure in name resolution]"), {"host": "s3.example.org"}),
    ("HUB_UNREACHABLE", raised("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /x (Caused by NameResolutionError(\"<urllib3.connection.HTTPSConnection object at 0x7f>: Failed to resolve 'huggingface.co' ([Errno -3] Temporary failure in name resolution)\"))"), {"host": "huggingface.co"}),
    ("NAME_NOT_RESOLVED", raised("socket.gaierror: [Errno -2] Name or service not known"), {}),
    ("NO_STANDARD_INPUT", raised("EOFError: EOF when reading a line"), {}),
    ("DEBUGGER_IN_SCRIPT", raised("bdb.BdbQuit"), {}),
    ("JAX_NUMBERS_MISSING", raised("ValueError: Number of processes must be defined."), {}),
    ("ENDED_BY_SCHEDULER", "slurmstepd: error: *** STEP 4711.0 ON gn5 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n", {}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "log", "params"), KNOWN, ids=[f"{n}-{code}" for n, (code, _, _) in enumerate(KNOWN)])
def test_library_messages_are_recognized_with_their_numbers_in_both_languages(
    code: str, log: str, params: dict[str, str]
) -> None:
    told = explain_log(f'{{"step": 3, "loss": 1.0}}\nloading …\n{log}')
    assert told is not None
    assert told.why == code
    assert told.about is not None
    assert params.items() <= told.about.items()
    for lang in ("en", "zh"):
        message, hint = messages.render_text(code, lang, **told.about)
        assert messages.MISSING_VALUE not in message + hint
    if "Traceback" in log:
        assert told.at == "train.py:88 in forward"


def test_the_table_of_messages_is_large() -> None:
    assert len(KNOWN) >= 60
    assert len({code for code, _, _ in KNOWN}) >= 60


CRASHES = [
    ("[rank3]: Traceback (most recent call last):\n[rank3]:   File \"/w/a.py\", line 5, in f\n[rank3]: ValueError: x", "ValueError: x", "a.py:5 in f"),
    (raised("ValueError: first") + "\nThe above exception was the direct cause of the following exception:\n\n" + raised("RuntimeError: then"), "ValueError: first", "train.py:88 in forward"),
    (raised("OSError: caught") + '{"step": 4, "loss": 1.0}\n' + raised("KeyError: 'a'").replace("forward", "<module>"), "KeyError: 'a'", "train.py:88"),
    ("Exception ignored in: <function A.__del__>\n" + raised("ValueError: survived") + raised("KeyError: 'b'").replace("88, in forward", "9, in <module>"), "KeyError: 'b'", "train.py:9"),
    ('  File "/w/a.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax\n', "SyntaxError: invalid syntax", "a.py:3"),
    ("terminate called after throwing an instance of 'std::runtime_error'\n  what():  no luck\n", "std::runtime_error: no luck", ""),
    ("thread 'main' panicked at src/lib.rs:10:5:\nindex out of bounds\n", "panic: index out of bounds", "lib.rs:10"),
    ("thread '<unnamed>' panicked at 'no luck', src/lib.rs:10:5\n", "panic: no luck", "lib.rs:10"),
    (raised("ValueError: Caught ValueError in DataLoader worker process 0.").rstrip() + '\nOriginal Traceback (most recent call last):\n  File "/env/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 351, in _worker_loop\n  File "/w/data.py", line 12, in __getitem__\nValueError: bad sample 7\n', "ValueError: bad sample 7", "data.py:12 in __getitem__"),
    ("no error at all\n", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("log", "exception", "at"), CRASHES, ids=range(len(CRASHES)))
def test_the_final_exception_and_the_users_line_are_found(log: str, exception: str | None, at: str | None) -> None:
    crash = tracebacks.find_crash(tracebacks.split_lines(log))
    assert (crash and crash.exception, crash and crash.at) == (exception, at)


LAUNCHER = """Traceback (most recent call last):
  File "/w/train.py", line 12, in <module>
    launcher.elastic_launch(config, entrypoint=work)(7)
  File "/env/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
work FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 30146)
  traceback : Traceback (most recent call last):
    File "/env/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 367, in wrapper
      return f(*args, **kwargs)
    File "/w/train.py", line 7, in work
      raise ValueError(f"bad batch at step {step}")
  ValueError: bad batch at step 7

============================================================
"""
"""What torch 2.13's elastic_launch prints at last."""
OF_CHILD = "".join(
    f"E1127 08:10:49.436000 29751 torch/distributed/elastic/multiprocessing/api.py:836] {line}\n"
    for line in """Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 211, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/w/train.py", line 7, in work
    raise ValueError(f"bad batch at step {step}")
ValueError: bad batch at step 7
""".splitlines()
)
ASKED = """Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/api.py", line 86, in handler
    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)
torch.distributed.elastic.multiprocessing.api.SignalException: Process 4891 got signal: 15
"""


@pytest.mark.parametrize("log", [LAUNCHER, OF_CHILD + LAUNCHER, OF_CHILD + LAUNCHER + ASKED], ids=range(3))
def test_a_launchers_report_is_attributed_to_its_child(log: str) -> None:
    """Also where the launcher was asked to end while it told of it."""
    error = {"type": "ChildFailedError", "message": "", "at": 10.0, "file": "/w/train.py", "line": 12}
    told = explain_log(log, error=error)
    assert told is not None
    assert (told.exception, told.at) == ("ValueError: bad batch at step 7", "train.py:7 in work")
    assert (told.why, told.follows) == ("", False)


def test_a_busy_store_port_is_not_reported_as_a_lost_peer() -> None:
    """Though its exception is the one that tells of a store that is gone."""
    said = "The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98"
    told = explain_log(
        raised(f"torch.distributed.DistNetworkError: {said}, name: EADDRINUSE, message: address already in use")
    )
    assert told is not None
    assert (told.why, told.follows) == ("PORT_IN_USE", False)


def test_a_lost_peer_explains_nothing_where_another_rank_knows_more() -> None:
    logs = {0: raised("RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.2]:1"), 1: raised("KeyError: 'x'")}
    ranks = [RankStatus(n, n, "exited", exit_code=1, ended_at=10.0 + n) for n in (0, 1)]
    told = root_cause.explain_failure(ranks, 0, NAMES, lambda rank: logs[rank].encode())
    assert told is not None
    assert (told.rank_status.rank, told.node, told.exception) == (1, "gn6", "KeyError: 'x'")


@pytest.mark.parametrize(
    ("kill", "code", "said"),
    [
        ({"scope": "cgroup", "limit": 8 << 30, "used": 8 << 30}, "MEMORY_LIMIT_REACHED", "limit of 8 GiB was reached"),
        ({"scope": "host", "limit": None, "used": 3 << 30}, "HOST_OUT_OF_MEMORY", "used 3 GiB"),
    ],
)
def test_an_oom_kill_names_the_limit(kill: Any, code: str, said: str) -> None:
    told = explain_log(raised("ValueError: caught long ago"), exit_code=-9, kill={"by": "memory", **kill})
    assert told is not None
    assert (told.why, told.exception) == (code, "")
    assert told.about is not None
    assert said in messages.render_text(code, "en", **told.about)[0]


def heard(number: int, text: str) -> dict[str, Any]:
    line = f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=4711, name=python, {text}"
    return {"by": "gpu", "gpu": 3, "xid": number, "line": line}


@pytest.mark.parametrize(("number", "text", "code", "said"), [
    (79, "GPU has fallen off the bus.", "GPU_LOST", "GPU 3 of gn5 (PCI:0000:3b:00) has fallen off the bus: Xid 79"),
    (48, "DBE (double bit error)", "GPU_MEMORY_DAMAGED", "GPU 3 of gn5 (PCI:0000:3b:00) has uncorrectable"),
    (74, "NVLink: fatal error", "GPU_LINK_FAILED", "The NVLink of GPU 3 of gn5 (PCI:0000:3b:00) has failed: Xid 74"),
])  # fmt: skip
def test_kernel_messages_about_a_gpu_come_before_cuda_errors(number: int, text: str, code: str, said: str) -> None:
    told = explain_log(raised("RuntimeError: CUDA error: unspecified launch failure"), kill=heard(number, text))
    assert told is not None
    assert told.about is not None
    assert (told.why, told.follows) == (code, False)
    assert said in messages.render_text(code, "en", **told.about)[0]
    assert root_cause.is_external(told.params())
    finding = told.finding()
    assert finding is not None
    assert [one.code for one in finding.evidence] == ["KERNEL_SAID", "RANK_PRINTED"]
    assert text in finding.evidence[0].lines[0]
    assert {"WITHOUT_NODE", "CORDON"} <= {one.code for one in finding.actions}


def test_a_scripts_gpu_error_is_told_by_its_own_exception() -> None:
    fault = heard(31, "MMU Fault: ENGINE GRAPHICS")
    told = explain_log(raised("IndexError: index out of range in self"), kill=fault)
    assert told is not None
    assert told.why == "INDEX_NOT_IN_EMBEDDING"
    unknown = explain_log("no word of it\n", kill=fault)
    assert unknown is not None
    assert unknown.why == "ILLEGAL_MEMORY_ACCESS"
    same = explain_log(
        raised(accelerator("an illegal memory access was encountered", "cudaErrorIllegalAddress")), kill=fault
    )
    for one, evidence in ((told, ["RANK_PRINTED"]), (same, ["KERNEL_SAID", "RANK_PRINTED"])):
        finding = one and one.finding()
        assert finding is not None
        assert [each.code for each in finding.evidence] == evidence


def test_details_appended_by_xla_are_removed() -> None:
    said = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 400.00GiB with allocator GPU_0_bfc on device 0."
    told = explain_log(
        raised(
            f"jax.errors.JaxRuntimeError: {said} [executable_name='jit__reduce_sum'] [tf-allocator-allocation-error='']"
        )
    )
    assert told is not None
    assert (told.why, told.exception) == ("JAX_OUT_OF_MEMORY", f"JaxRuntimeError: {said}")


def test_an_external_kill_is_not_explained_by_earlier_errors() -> None:
    assert explain_log(raised("ValueError: caught"), exit_code=-9) is None


ALPHABET = [
    "Traceback (most recent call last):\n", '  File "a.py", line 1, in f\n', "ValueError: x\n", "[rank0]: ", "\n", "  | ",
    "During handling of the above exception, another exception occurred:\n", "Fatal Python error: ", "{", "}", "'", "\r",
    "CUDA out of memory. Tried to allocate ", "thread 'x' panicked at ", "+-+---------------- 1 ----------------\n", "\0",
    "terminate called after throwing an instance of '", "Current thread 0x1 (most recent call first):\n", "é", "9" * 50,
]  # fmt: skip


@pytest.mark.timeout(60)
def test_no_log_raises_or_takes_long() -> None:
    chance = random.Random(7)
    tails = ["".join(chance.choices(ALPHABET, k=4000)) for _ in range(8)]
    tails += [one * (tracebacks.MAX_BYTES // len(one)) for one in ALPHABET[:6]]
    tails += ["".join(chance.choices(string.printable, k=40_000)), "x" * tracebacks.MAX_BYTES]
    for tail in tails:
        explain_log(tail)


@pytest.mark.timeout(60)
def test_a_projects_rule_takes_linear_time() -> None:
    own, wrong = rules.parse_rules(
        '[SLOW]\nlines = ["aaaa{one}a{two}a{three}a{four}a{five}b"]\nmessage = "m"\nhint = "h"\n'
    )
    assert not wrong
    assert own[0].lines[0].match("a" * 100_000) is None
