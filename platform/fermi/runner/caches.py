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
import tempfile
from collections.abc import Mapping

CACHE_VARIABLE = "FERMI_CACHE_DIR"
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
    return {name: path for name, path in own.items() if name not in env or _is_set_by_torch(name, env[name])}


def _is_writable(path: str) -> bool:
    """Return whether a folder can be written to, or created."""
    if not os.path.isabs(path):
        return False
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)


def _is_set_by_torch(name: str, value: str) -> bool:
    """Return whether torch has set a variable of this process when it was imported: to a folder in /tmp
    (`torch/_inductor/runtime/cache_dir_utils.py`), which a process that forks ranks would hand on."""
    folder, base = os.path.split(value)
    return name == "TORCHINDUCTOR_CACHE_DIR" and folder == tempfile.gettempdir() and base.startswith("torchinductor_")
