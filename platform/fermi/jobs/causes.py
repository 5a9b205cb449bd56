"""Declares what follows from each cause that any engine may give. An engine declares causes of its own in the same way:
in the module `causes` of its package, with their texts in the package's `texts.toml`.

An engine gives a code and what fills its text. What is declared of the code is added where the platform reads causes
(`plugins.get_causes`), for a cause that was just given as for one that an earlier release stored.
"""

from collections.abc import Mapping

from fermi.jobs.spec import Cause

ALWAYS_FREE = 1000
"""A number of free ends that no task reaches, and that still bounds every loop."""
MAX_CODE_LENGTH = 40
"""Characters of a code that columns of the database hold."""


def declare_causes(*causes: Cause) -> Mapping[str, Cause]:
    """Return the causes by code. Raises ValueError for a code that cannot be stored."""
    for cause in causes:
        if not cause.code or len(cause.code) > MAX_CODE_LENGTH:
            raise ValueError(f"a cause's code has 1 to {MAX_CODE_LENGTH} letters: {cause.code!r}")
    return {str(cause.code): cause for cause in causes}


DISK_FULL = Cause("DISK_FULL", retry=True, free=3)
RANK_FAILED = Cause("RANK_FAILED", retry=True)
RANK_KILLED = Cause("RANK_KILLED", retry=True)
RANK_LEFT_EARLY = Cause("RANK_LEFT_EARLY", retry=True)

CODE_DELIVERY_CODES = ("CODE_ARCHIVE_MISSING", "CODE_ARCHIVE_BROKEN", "CODE_NOT_UNPACKED", "CODE_PACKAGES_FAILED")
"""Codes that a runner gives where it could not bring a task's code to its node."""

RESUME_NOT_ON_NODE = "RESUME_NOT_ON_NODE"
"""Code that a runner gives where the checkpoint is missing that rank 0 was to resume from."""

NO_SPACE_CODES = ("DISK_RESERVE_REACHED", "DISK_WITHOUT_ROOM")
"""Codes that a runner gives where a disk has no more space than what is reserved for the platform: for a task that
wrote, and for one that was to start."""
BOUND_CODES = (
    *NO_SPACE_CODES, "DISK_BOUND_REACHED", "MEMORY_BOUND_REACHED", "OPEN_FILE_BOUND_REACHED", "PROCESS_BOUND_REACHED"
)  # fmt: skip
"""Codes that a runner gives for a task that used, or was to use, more of its machine than it may."""

CODE_PREPARING_CODES = ("CODE_UNPACKING", "CODE_PACKAGES_PREPARING")
"""Codes of what a runner does before ranks start; the latter takes longer."""

ENVD_CODES = ("SERVICE_CRASHED", "PACKAGES_FAILED", "START_SCRIPT_FAILED", "JUPYTERLAB_MISSING", "VSCODE_MISSING")
"""Codes that environment daemons report of a service that ended."""

CAUSES = declare_causes(
    # said of ranks, by what they and their runners report (`backends.culprit`)
    RANK_FAILED,
    RANK_KILLED,
    RANK_LEFT_EARLY,
    DISK_FULL,
    Cause("DISK_BOUND_REACHED"),
    Cause("DISK_RESERVE_REACHED", retry=True),
    Cause("DISK_WITHOUT_ROOM", retry=True, free=3),
    Cause("MEMORY_BOUND_REACHED", retry=True),
    Cause("OPEN_FILE_BOUND_REACHED"),
    Cause("PROCESS_BOUND_REACHED"),
    Cause("CODE_ARCHIVE_MISSING"),
    Cause("CODE_ARCHIVE_BROKEN"),
    Cause("CODE_NOT_UNPACKED", retry=True),
    Cause("CODE_PACKAGES_FAILED"),
    Cause("CODE_UNPACKING", patient=True),
    Cause("CODE_PACKAGES_PREPARING", patient=True),
    Cause("RESUME_NOT_ON_NODE"),
    Cause("MASTER_PORT_TAKEN", retry=True, free=5, underlying=True),
    Cause("RUNNER_LOST", retry=True, lost=True),
    Cause("RUNNER_TERMINATED", retry=True, asked=True),
    # said of environments
    Cause("KEEPER_LOST", retry=True, lost=True),
    *map(Cause, ENVD_CODES),
    Cause("ENVIRONMENT_OVER_ITS_SIZE"),
    Cause("ENVIRONMENT_FILLED_THE_DISK", retry=True),
    Cause("ENVIRONMENT_WITHOUT_ROOM", retry=True),
    # said of environments in containers
    Cause("IMAGE_PULLING", patient=True),
    Cause("IMAGE_NOT_FOUND"),
    Cause("IMAGE_FORBIDDEN"),
    Cause("IMAGE_NO_ROOM", retry=True),
    Cause("IMAGE_REGISTRY_AWAY", retry=True),
    Cause("IMAGE_PULL_FAILED"),
    Cause("IMAGE_WITHOUT_PYTHON"),
    Cause("CONTAINERS_AWAY", retry=True),
    Cause("CONTAINER_GPUS_UNKNOWN"),
    Cause("CONTAINER_NAME_TAKEN"),
    Cause("CONTAINER_NOT_STARTED"),
    Cause("CONTAINER_OUT_OF_MEMORY", retry=True),
    Cause("KEEPER_UNSTARTABLE"),
    Cause("DISK_UNUSABLE"),
    # said by several engines
    Cause("MASTER_UNREACHABLE", retry=True),
    Cause("NODES_MISSING", retry=True, lost=True),
    Cause("NODE_LOST", retry=True, underlying=True, lost=True),
    Cause("OUT_OF_MEMORY", retry=True),
    Cause("CONTAINER_RESTARTED", retry=True),
    Cause("INSIDE_SILENT", retry=True),
    Cause("QUEUE_WAITING", patient=True),
    Cause("ENGINE_UNREACHABLE", retry=True),
    Cause("ENGINE_UNAUTHORIZED", retry=True),
    Cause("ENGINE_NOT_CONFIGURED", retry=True),
    Cause("ENGINE_FORBIDDEN"),
    Cause("ENGINE_REJECTED"),
)

RANK_CODES = frozenset({RANK_FAILED.code, RANK_KILLED.code, RANK_LEFT_EARLY.code})
"""Codes of ends that the training script caused: they may happen again at the same step or with the same checkpoint."""
