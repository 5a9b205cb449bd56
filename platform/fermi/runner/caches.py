"""Where libraries of a rank keep what they download and compile: in a folder that all ranks of a node share and that
outlives the task. Standard library only, Python 3.9 or later.

The folder is FERMI_CACHE_DIR where an engine has one for the project, else that of the rank's HOME, which is the
project's own in a sandbox, and the environment's inside of one. A variable that the task, the environment or the image
sets stays as it is.

Ranks fill it at the same time. huggingface_hub locks each file while one process downloads it. torch.hub, Triton and
TorchInductor write a temporary file and rename it: several may do the same work, but none reads half of it.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping

CACHE_VARIABLE = "FERMI_CACHE_DIR"
NODE_CACHE_VARIABLE = "FERMI_NODE_CACHE_DIR"
COMPILED = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Variables of compiled kernels, which may lie on a disk of the node."""
FOLDERS = {
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
}
"""The folder for each variable. Of Hugging Face and torch.hub they are the libraries' own below ~/.cache."""


def build_cache_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a rank with the variables `env` gets in addition; none without a folder that can be
    written to."""
    home = env.get("HOME", "")
    top = env.get(CACHE_VARIABLE) or env.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else "")
    if not _is_writable(top):
        return {}
    own = {name: os.path.join(top, folder) for name, folder in FOLDERS.items()}
    if node := env.get(NODE_CACHE_VARIABLE):
        own |= {name: os.path.join(node, FOLDERS[name]) for name in COMPILED}
    return {name: path for name, path in own.items() if name not in env or _is_default(name, env[name], home)}


def make_node_cache(path: str) -> None:
    """Make a project's folder for compiled kernels on a disk of the node. Raise OSError, also for one that other users
    could write to or exchange: whoever writes there runs code in the project's tasks."""
    above = os.path.dirname(path)
    os.makedirs(above, exist_ok=True)
    info = os.stat(above)
    is_shared = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not info.st_mode & stat.S_ISVTX
    if info.st_uid not in (0, os.geteuid()) or is_shared:
        raise PermissionError(0, "another user can exchange what is in it", above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        own = found.st_uid == os.geteuid() and stat.S_ISDIR(found.st_mode)
        if not own or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(0, "it is not a folder that only this user writes to", path) from None


def _is_writable(path: str) -> bool:
    """Return whether a folder can be written to, or created."""
    if not os.path.isabs(path):
        return False
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)


def _is_default(name: str, value: str, home: str) -> bool:
    """Return whether a variable was not set on behalf of the task: torch has set it to a folder in /tmp when it was
    imported (`torch/_inductor/runtime/cache_dir_utils.py`), which a process that forks ranks would hand on, or the
    sandbox to one in its HOME."""
    if name != "TORCHINDUCTOR_CACHE_DIR":
        return False
    folder, base = os.path.split(value)
    is_of_torch = folder == tempfile.gettempdir() and base.startswith("torchinductor_")
    return is_of_torch or (bool(home) and value == os.path.join(home, ".cache", FOLDERS[name]))
