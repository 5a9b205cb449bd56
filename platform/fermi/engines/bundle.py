"""Our own modules that a node needs where nothing of ours is installed (a pod, a machine of a Slurm cluster): the node
runner, its measurements, the probe that it gives its ranks, and the trainer where the job uses one."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import fermi

_ROOT = Path(fermi.__file__).parent
RANK_EXEC_MODULE = "fermi.envd.rank_exec"
POD_MODULES, SLURM_MODULES, FOREGROUND_MODULES = (
    ("fermi.runner.pod", RANK_EXEC_MODULE),
    ("fermi.runner.slurm", RANK_EXEC_MODULE),
    ("fermi.runner.foreground",),
)
INSIDE_MODULES = (
    "fermi.inside.__main__",
    "fermi.inside.rank_exec",
    "fermi.runner.inside",
    "fermi.runner.standby",
    RANK_EXEC_MODULE,
)
ENVD_MODULES = ("fermi.envd.__main__", "fermi.envd.packages")
SLURM_ENVD_MODULES = (*ENVD_MODULES, "fermi.envd.bridge", "fermi.envd.interpreter")
"""Entry modules of each place; what they import of ours is added."""

_COMMENT = re.compile(r"#.*")
_IMPORT = re.compile(
    r"^ *from fermi\.(envd|inside|probe|runner|telemetry|train)(?:\.(\w+))? import (\([^)]*\)|[\w, ]+)", re.MULTILINE
)


def list_trainers(command: Iterable[object]) -> tuple[str, ...]:
    """Return our trainers that a command runs, as module names."""
    return tuple(word for word in command if isinstance(word, str) and word.startswith("fermi.train."))


def collect_modules(entry_modules: tuple[str, ...], command: Iterable[object]) -> Mapping[str, str]:
    """Return the entry modules, what they import of ours, and the trainers of a command, as path -> text. Packages are
    empty folders with an `__init__.py`."""
    return _collect_modules(entry_modules, list_trainers(command))


@lru_cache
def _collect_modules(runner: tuple[str, ...], trainers: tuple[str, ...]) -> Mapping[str, str]:
    packages = tuple(f"{name}/__init__.py" for name in ("fermi", "fermi/probe", "fermi/runner", "fermi/telemetry"))
    wanted, found = [*runner, *trainers], {**dict.fromkeys(packages, ""), **_read_probe()}
    if any(name.startswith("fermi.envd.") for name in runner):
        found["fermi/envd/__init__.py"] = ""
    if any(name.startswith("fermi.inside.") for name in runner):
        found["fermi/inside/__init__.py"] = ""
    if trainers:
        found["fermi/train/__init__.py"] = ""
    while wanted:
        name = wanted.pop()
        path = name.replace(".", "/") + ".py"
        if path not in found:
            found[path] = (_ROOT.parent / path).read_text(encoding="utf-8")
            wanted += _list_imports(found[path])
    return found


def _read_probe() -> dict[str, str]:
    """Return all modules of the probe: a rank's process imports it, and no module of the runner."""
    folder = _ROOT / "probe"
    paths = sorted(path for path in folder.rglob("*.py") if path != folder / "__init__.py")
    return {path.relative_to(_ROOT.parent).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _list_imports(text: str) -> list[str]:
    """Return the names of our modules that a module imports: `from fermi.train import a, b` and `from fermi.train.a
    import …`."""
    return [
        f"fermi.{package}.{name}"
        for package, module, names in _IMPORT.findall(text)
        for name in (
            [module]
            if module
            else [part.split()[0] for part in _COMMENT.sub("", names).strip("()").split(",") if part.strip()]
        )
    ]
