"""The start script of a TensorBoard's environment: the program itself, so that no engine has to carry a module."""

from functools import cache
from importlib.resources import files

_END = "END_OF_PROGRAM"


@cache
def build_start_script() -> str:
    """Return a script for `/bin/sh` that runs `fermi.tensorboard.program` with the environment's interpreter, which is
    the first on PATH."""
    program = files("fermi.tensorboard").joinpath("program.py").read_text("utf-8")
    assert _END not in program
    return f"exec \"$(command -v python3 || command -v python)\" -u - <<'{_END}'\n{program}{_END}\n"
