"""What a fault and a healthy run are made of."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tests.platform_process import FINAL
from tests.polling import until

if TYPE_CHECKING:
    from tests.faults.catalogue.lab import FaultLab

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Expected:
    """What a person has to be told. `code`: any of these. `rank`, `node`: where it is; a node is a number of the
    fault's environments, a pair of them where it is between two. `says`: what the finding's message or hint has to
    have; `shows`: what its evidence may have instead. Of words parted by `|` any will do, capitals or not; `{here}` is
    the number of the script's line that ends with `# here`."""

    code: str
    rank: int | None = None
    node: int | tuple[int, int] | None = None
    says: Sequence[str] = ()
    shows: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """`script`: what every rank runs, beside `knowable.py`, `gang.py` and `files`. It says itself when it goes wrong
    (`knowable()`), unless `inject` does (`run.stamp()`). `gpus`: of each environment; `environments` finds others
    than this machine's. `ends`: states one of which the task has to reach with the answer still right; without any it
    is stopped. `alone`: it meddles with the platform itself, so nothing else may happen meanwhile."""

    script: str
    expected: Expected
    gpus: Sequence[int] = (1, 1)
    request: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    inject: Callable[["FaultRun"], None] | None = None
    environments: Callable[["FaultRun"], list[str]] | None = None
    ends: Sequence[str] = ("failed",)
    alone: bool = False
    needs: Callable[[], str] = lambda: ""
    """Why it cannot be made on this machine; empty where it can."""


@dataclass(frozen=True, slots=True)
class Healthy:
    """A run with which nothing is wrong."""

    script: str
    gpus: Sequence[int] = (1, 1)
    request: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    times: int = 5
    """Of a hundred."""


class FaultRun:
    """One fault or run, as it happens: what its injector is handed. Names of nodes are those of its environments."""

    def __init__(self, fault_lab: "FaultLab", name: str, part: Fault | Healthy) -> None:
        self.fault_lab, self.platform, self.name, self.part = fault_lab, fault_lab.platform, name, part
        self.slug = f"job{next(fault_lab.numbers)}"  # what a fault is called must not stand in any answer
        self.folder = self.platform.data / "workspace" / self.slug
        self.stamps = self.folder / "stamps"
        self.nodes: list[str] = []
        self.request: dict[str, Any] = {}
        self.task_id = ""
        self.after = ExitStack()
        """What has to be undone."""

    # What an injector does -------------------------------------------------------------------------------------

    def stamp(self) -> None:
        """It has gone wrong, just now."""
        path = self.stamps / "knowable"
        if not path.exists():
            path.write_text(repr(time.time()))

    def go(self, name: str) -> None:
        """Lets scripts that wait for it (`when`) go on."""
        (self.stamps / name).touch()

    def reached(self, name: str, seconds: float = 90) -> None:
        """Until the script has said so."""
        self.until((self.stamps / name).exists, seconds=seconds, what=f"{self.name}: {name}")

    def until(self, condition: Callable[[], T], *, seconds: float = 90, what: str = "") -> T:
        """Fails as soon as the task has ended meanwhile."""

        def happened() -> T | None:
            if found := condition():
                return found
            if self.task_id and (task := self.task())["status"] in FINAL:
                raise AssertionError(f"{self.name} ended before {what}: {task['reason']}\n{self.log()[-1500:]}")
            return None

        return until(happened, seconds=seconds, what=what)  # type: ignore[return-value]

    def task(self) -> dict[str, Any]:
        return self.platform.task(self.task_id)

    def pid(self, rank: int) -> int:
        return self.until(lambda: self.task()["ranks"][rank]["pid"], what=f"the process of rank {rank}")

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        """From outside."""
        pid = self.pid(rank)
        self.stamp()
        os.kill(pid, number)

    def log(self, rank: int = 0, attempt: int = 1) -> str:
        return self.platform.log(self.task_id, rank, attempt)

    # What plays it ---------------------------------------------------------------------------------------------

    def knowable(self) -> float | None:
        try:
            return float((self.stamps / "knowable").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def line(self, mark: str) -> int:
        """Of the script, that which ends with the mark."""
        lines = self.part.script.lstrip("\n").splitlines()
        return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))

    def set_up(self) -> None:
        self.stamps.mkdir(parents=True)
        sources = Path(__file__).with_name("workspace").glob("*.py")
        files = {path.name: path.read_text() for path in sources} | {"train.py": self.part.script.lstrip("\n")}
        for name, text in (files | dict(self.part.files)).items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        for path in (self.folder, *self.folder.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o644)  # ranks may be another user

    def start(self) -> None:
        find = self.part.environments if isinstance(self.part, Fault) else None
        ids = find(self) if find else self.fault_lab.environments(self, self.part.gpus)
        own = {"entrypoint": {"script": str(self.folder / "train.py"), "args": []}} if self.part.script else {}
        changes = {
            "taskName": self.slug, "maxRestarts": 0, "graceSeconds": 3, **own, **self.request, **self.part.request,
        }  # fmt: skip
        if framework := changes.pop("framework", ""):
            changes["distributedConfig"] = {"nodeIds": ids, "masterNode": ids[0], "framework": framework}
        self.task_id = self.platform.create(ids, **changes)

    def tear_down(self) -> None:
        """Nothing of it is left for those that come after it."""
        if self.task_id and self.task()["status"] not in FINAL:
            self.platform.api.post(f"/training-tasks/{self.task_id}/stop")
        self.after.close()
