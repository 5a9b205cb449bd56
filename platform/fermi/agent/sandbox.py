"""The sandbox of a host's ranks: they cannot access the agent's state, tokens and processes, and, if the host mounts
the platform's data directory, nothing in it that is not their task's.

Landlock alone: another user could not write into a data directory that the agent's user shares with the platform.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from fermi import messages
from fermi.engines import isolation
from fermi.engines.isolation import Isolation, SandboxPaths
from fermi.jobs.rank_env import COMPILE_FOLDER, COMPILE_VARIABLE
from fermi.jobs.user_paths import CHECKPOINTS_FOLDER, FILES_FOLDER, find_output_folder, find_task_folder
from fermi.runner.placeholders import AFTER_CHECKPOINT_VARIABLE, AFTER_OUTPUTS_VARIABLE

FOREIGN_VARIABLES = ("FERMI_RESUME_FROM", AFTER_CHECKPOINT_VARIABLE, AFTER_OUTPUTS_VARIABLE)
"""What may lie in folders of other tasks, which the task may read."""


@dataclass(frozen=True, slots=True)
class HostSandbox:
    """The isolation of this host, and its paths."""

    paths: SandboxPaths
    isolation: Isolation

    @classmethod
    def from_paths(
        cls, state: Path, workspace: Path, python: str, private: Sequence[Path], *, enabled: bool,
        reads: Sequence[str] = (), writes: Sequence[str] = (),
    ) -> Self:  # fmt: skip
        """Return the sandbox for these paths. `private`: inaccessible files; `enabled`: whether ranks are confined."""
        place = SandboxPaths(
            state, workspace, python, private=tuple(path.expanduser().absolute() for path in private),
            reads=tuple(map(Path, reads)), writes=tuple(map(Path, writes)),
        )  # fmt: skip
        return cls(place, isolation.choose_isolation("landlock" if enabled else "off", place))

    def order(
        self,
        files: Path,
        logs: Path,
        env: Mapping[str, str],
        code: Sequence[Path] = (),
        packages: Sequence[Path] = (),
        *,
        home: Path,
    ) -> dict[str, Any] | None:
        """Return the sandbox of one rank, whose environment is `env`, for its runner; see `fermi.runner.sandbox`.
        `code`: the tree that it starts in, if it has one, and its packages. `home`: HOME, of its project."""
        place, own, readable = self.paths, [*code], [files, *packages]
        compiled = files / COMPILE_FOLDER
        own += [compiled] if env.get(COMPILE_VARIABLE) == str(compiled) else []
        checkpoints = Path(env.get("FERMI_CHECKPOINT_DIR", ""))
        if self.isolation.protects and checkpoints.parent.name == CHECKPOINTS_FOLDER and len(checkpoints.parents) > 2:
            data = checkpoints.parents[1]
            place = replace(place, private=(*place.private, data))
            with suppress(OSError):  # a script may do without
                checkpoints.mkdir(parents=True, exist_ok=True)
            own += [checkpoints] if checkpoints.is_dir() else []
            foreign = [find_task_folder(data, env.get(name, "")) for name in FOREIGN_VARIABLES]
            if outputs := find_output_folder(data, env.get("FERMI_OUTPUT_DIR", "")):
                with suppress(OSError):
                    outputs.mkdir(parents=True, exist_ok=True)
                own += [outputs] if outputs.is_dir() else []
            shared = Path(env.get("FERMI_FILES_DIR", ""))
            readable += [shared] if shared.parent == data / FILES_FOLDER else []
            readable += [data / "datasets", data / "workspace", *(one for one in foreign if one)]
        return self.isolation.order(place, own=own, readable=readable, logs=logs, home=home)

    def sentences(self, lang: str) -> str:
        """Return a text for the user who starts the agent."""
        code = "WORKER_CONFINES" if self.isolation.protects else "WORKER_CONFINES_NOTHING"
        said = [(code, {"state": str(self.paths.home)}), *self.isolation.reasons]
        return " ".join(part for code, params in said for part in messages.render_text(code, lang, **params) if part)
