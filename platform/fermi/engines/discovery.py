"""Dev environment as its engine reports it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class DiscoveredEnvironment:
    """Environment that an engine reports. `key` is stable within the cluster, whatever restarts. `project` is an id or
    a name. `running` means usable now; `healthy` False = it should be and is not. `started_at`: unix seconds. `engine`:
    see `Node.engine`. Empty fields are not known."""

    key: str
    name: str
    project: str
    running: bool
    healthy: bool = True
    owner: str = ""
    kind: str = ""
    zone: str = ""
    gpu_type: str = ""
    gpu_count: int = 0
    emulated: bool = False
    cpu_cores: int = 1
    memory_gb: int = 1
    image: str = ""
    host: str = ""
    ip: str = ""
    started_at: float | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)
