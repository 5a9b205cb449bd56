"""Decide whether ranks may be forked from a process that has imported the training stack."""

from fermi.jobs.spec import JobSpec

IMPORT_TIME_PREFIXES = (
    "PYTHON",
    "LD_",
    "OMP_",
    "GOMP_",
    "MKL_",
    "MKLDNN_",
    "DNNL_",
    "ONEDNN_",
    "KMP_",
    "OPENBLAS_",
    "GOTO_",
    "NPY_",
    "NUMPY_",
    "TORCH",
    "PYTORCH_",
    "AOT_",
    "AOTINDUCTOR_",
    "INDUCTOR_",
    "CUTLASS_",
    "CUTEDSL_",
    "TRITON_DEBUG",
    "TRITON_INTERPRET",
    "TRITON_ENABLE_PYTHON_STACKTRACE",
    "TRITON_INSTRUMENTATION_MODE",
    "TRITON_BACKENDS_IN_TREE",
    "TRITON_PLUGIN_PATHS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_PREFER_SPINLOCKS_ON_HOST",
    "CUDAHOSTCXX",
    "CXX",
    "CUBLAS_LOG",
    "CUBLASLT_DISABLE_CPU_INSTRUCTIONS_MASK",
    "NVRTC_",
    "KINETO_",
    "MALLOC_",
    "GLIBC_",
)
"""Prefixes of variables that the interpreter or a library reads while it starts or is imported. Where the user sets
one, ranks are executed afresh instead of being forked from a process that has already read it. Found by watching
`getenv` while torch 2.13 (and 2.11 for CUDA 13) and numpy are imported (tests/gpu, `read-before-the-fork`). Of families
of which most are read later, and which tasks often set (CUDA_VISIBLE_DEVICES, TRITON_CACHE_DIR, NCCL_…), only those
that are read then: where Triton reads TRITON_INTERPRET after the fork, for example, the script's kernels would be
interpreted and those of its own language, made when it was imported, would not."""


THREADS_VARIABLE = "OMP_NUM_THREADS"
"""A forked rank sets this number itself (`fermi.runner.rank.run_rank_here`)."""


def find_import_time_variables(job: JobSpec) -> list[str]:
    """Return the variables of the job that are read at import time, which a process that ranks are forked from has
    passed: ranks are executed then."""
    env = {name: value for name, value in job.env.items() if name != THREADS_VARIABLE or not value.isdecimal()}
    return [name for name in (*env, *job.secret_env) if name.startswith(IMPORT_TIME_PREFIXES)]


def explain_import(job: JobSpec) -> str:
    """Return which variables make the ranks import the training stack themselves, for their log; empty: none does."""
    names = find_import_time_variables(job)
    return f"{', '.join(names)}: read when PyTorch is imported" if names else ""


def can_fork_ranks(job: JobSpec) -> bool:
    """Return whether no variable of the job is read at import time."""
    return not find_import_time_variables(job)
