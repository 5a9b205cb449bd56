"""Engine that trains on hosts where worker agents run (`fermi worker`): one worker per GPU, one rank per worker.

    store.py          protocol of what is stored between the backend and the agents; the platform implements it
    render.py         a plan as one order per worker; pure
    state.py          an observation from the workers' reports; pure
    check.py          whether there are workers
    engine.py         the backend's methods
    containers.py     nodes inside of environments that are containers, which the platform enters itself
    environments.py   dev environments on the hosts

What a node's `engine` holds: `workers` (ids, in the order of their ranks); optional `gpus` (the GPU index of each;
default: the number in the worker's id) and `address` (where the other hosts reach it, such as a group's master address;
default: the environment's host, else its IP address, else its name).

The connection:

    data   {"mountPath": "…"}: where the hosts see the platform's data directory (datasets, checkpoints), which they
           share; default: the path that the platform itself has
    bounds what a task may use of a host: see `fermi.jobs.bounds`
"""

from typing import Any

from fermi.engines.agent import engine
from fermi.engines.agent.engine import AgentBackend
from fermi.engines.agent.store import AttemptStore
from fermi.engines.connections import cache_by_connection


def set_store(store: AttemptStore) -> None:
    """Set the store for all backends of this process, those that exist and those that are made later."""
    engine.store = store


@cache_by_connection
def connect(connection: dict[str, Any]) -> AgentBackend:
    """Return the backend of a connection; the same one for equal connections."""
    return AgentBackend(connection)
