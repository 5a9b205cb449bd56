"""Hooks for JAX: sets up `jax.distributed` and reports compilations. A step is one call of a compiled function among
others, and its collectives run inside: neither can be seen."""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .rank import ProgressWriter

_EVENTS = "/jax/core/compile/"
_LAST = "/backend_compile_duration"
"""The last of the three events of a compilation: jax/_src/dispatch.py, jax 0.10."""


_OF_TASK = ("MASTER_ADDR", "MASTER_PORT", "FERMI_TASK_ID")
_PLACE, _NODE_PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("NODE_RANK", "NNODES")
"""Of a rank; and of a node's one process, which has all of its GPUs."""
_BY_MPI = "OMPI_COMM_WORLD_RANK"
"""Set in a script that starts MPI's processes itself: then MPI's numbers count."""


def joins(pulse: ProgressWriter, clusters: ModuleType) -> None:
    """Make `jax.distributed.initialize()` work without arguments, as on clusters that JAX knows: subclasses of its
    `ClusterEnv` are tried in their order (jax/_src/clusters/cluster.py, jax 0.10). Ours comes first, because Slurm's
    and Kubernetes' variables are those of a node and not of a rank."""

    class Cluster(clusters.ClusterEnv):  # type: ignore[name-defined]
        name = "fermi"

        @classmethod
        def is_env_present(cls) -> bool:
            known = any(all(name in os.environ for name in (*place, *_OF_TASK)) for place in (_PLACE, _NODE_PLACE))
            return known and _BY_MPI not in os.environ

        @classmethod
        def get_coordinator_address(cls, *_: Any, override_coordinator_port: str | None = None, **__: Any) -> str:
            return f"{os.environ['MASTER_ADDR']}:{override_coordinator_port or os.environ['MASTER_PORT']}"

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ.get("WORLD_SIZE") or os.environ["NNODES"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ.get("RANK") or os.environ["NODE_RANK"])

        @classmethod
        def get_local_process_id(cls) -> int | None:
            return int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else None

    known = clusters.ClusterEnv._cluster_types
    known.insert(0, known.pop(known.index(Cluster)))


def compiles(pulse: ProgressWriter, monitoring: ModuleType) -> None:
    """Report compilations on the main thread."""
    depth, before = 0, 0

    def begins(event: str, _: object, **about: Any) -> None:
        nonlocal depth, before
        if event.startswith(_EVENTS) and pulse.on_main_thread():
            depth += 1
            if depth == 1:
                before = pulse.start_compiling()

    def ends(event: str, _: object, **about: Any) -> None:
        nonlocal depth
        if event.startswith(_EVENTS) and pulse.on_main_thread() and depth:
            depth -= 1
            if depth == 0:
                pulse.finish_compiling(before, whole=event.endswith(_LAST))

    monitoring.register_scalar_listener(begins)
    monitoring.register_event_duration_secs_listener(ends)
