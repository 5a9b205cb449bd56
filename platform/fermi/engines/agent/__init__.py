"""Training on hosts where worker agents run (`fermi worker`): one worker per GPU, one rank per worker.

store.py    what is remembered between the backend and the agents: a protocol; the platform implements it
render.py   a plan as one order per worker; pure          state.py    from reports to an observation; pure
check.py    are there workers                             engine.py   the backend's verbs
containers.py    nodes inside of environments that are containers, which the platform enters itself

What a node's `engine` holds: `workers` (ids, in the order of their ranks); optional `gpus` (the GPU index of each;
default: the number in the worker's id) and `address` (where the other hosts reach it, such as a group's master
address; default: the environment's host, else its IP address, else its name).

The connection:

    data   {"mountPath": "…"}: where the hosts see the platform's data directory (datasets, checkpoints), which they
           share; default: the path that the platform itself has
    bounds what a task may use of a host: see `fermi.jobs.bounds`
"""

import json
from functools import lru_cache
from typing import Any

from fermi.engines.agent import engine
from fermi.engines.agent.engine import AgentBackend
from fermi.engines.agent.store import Store


def use(store: Store) -> None:
    """For all backends of this process, made or to be made."""
    engine.store = store


def connect(connection: dict[str, Any]) -> AgentBackend:
    return _connect(json.dumps(connection, sort_keys=True))


@lru_cache
def _connect(key: str) -> AgentBackend:
    return AgentBackend(json.loads(key))
