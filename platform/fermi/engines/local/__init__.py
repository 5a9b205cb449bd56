"""Engine that trains on this machine: each node of a job is a node runner here, detached from the platform.

    <data>/runs/<task>-<attempt>/     node-0.json, .lock, .status.json, .pulse.json, .log per node; stop.json;
                                      files/ (the plan's)
    <data>/logs/<task>/<attempt>/     <rank>.log, written by the ranks themselves

The connection: `data_dir`; optional `python` (interpreter of the training stack; default: ours), `workspace` (folder in
which relative scripts are looked for and ranks start; default `<data>/workspace`), `script_roots` (folders that scripts
may lie in; default: wherever ranks may read), `warm` (keep one process standing by with the stack imported; default
true: it costs ~300 MB). The platform adds `isolation` (see `fermi.engines.isolation`; without it ranks are not
confined), `private` (further paths that ranks must not reach), `data_roots` (folders that they must), `task_reads` and
`task_writes` (what the operator lets all tasks read, and write).
"""

from typing import Any

from fermi.engines.connections import cache_by_connection
from fermi.engines.local.engine import LocalBackend, stop_everything

__all__ = ["LocalBackend", "connect", "stop_everything"]


@cache_by_connection
def connect(connection: dict[str, Any]) -> LocalBackend:
    """Return the backend of a connection; the same one for equal connections."""
    return LocalBackend(connection)
