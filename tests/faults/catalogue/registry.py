"""Which faults and healthy runs there are: the modules of two folders."""

import itertools
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from tests.faults.catalogue.fault import Fault, Healthy

HERE = Path(__file__).parent


def list_names(folder: str) -> list[str]:
    return sorted(path.stem for path in (HERE / folder).glob("*.py") if path.stem != "__init__")


def load_fault(name: str) -> Fault:
    found: Fault = import_module(f"{__package__}.faults.{name}").FAULT
    return found


def load_faults(wanted: Sequence[str] = ()) -> list[tuple[str, Fault]]:
    """All, or those of such names."""
    there = list_names("faults")
    if unknown := sorted(set(wanted) - set(there)):
        raise SystemExit(f"no such fault: {', '.join(unknown)}; there are {', '.join(there)}")
    return [(name, load_fault(name)) for name in there if not wanted or name in wanted]


def choose_healthy_runs(count: int, wanted: Sequence[str] = ()) -> list[tuple[str, Healthy]]:
    """`count` runs of all kinds (or of those wanted), mixed; each as often as it says of a hundred."""
    there = [name for name in list_names("healthy") if not wanted or name in wanted]
    kinds = [(name, import_module(f"{__package__}.healthy.{name}").HEALTHY) for name in there]
    turns = [(name, kind) for turn in range(100) for name, kind in kinds if turn < kind.times]
    found = itertools.islice(itertools.cycle(turns), count if turns else 0)
    return [(f"{name}_{number}", kind) for number, (name, kind) in enumerate(found, 1)]
