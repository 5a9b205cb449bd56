"""Which doors an environment has, and what is behind them now."""

from collections.abc import Mapping
from typing import Any

from apps.clusters.models import DevEnvironment, EnvironmentKind
from apps.common.errors import ApiError
from apps.environments.models import Hosted

SERVED = (EnvironmentKind.JUPYTER, EnvironmentKind.VSCODE)
"""Kinds with a service of their own: their main door."""
COMING = ("creating", "starting")
SHUT = ("stopping", "stopped", "failed", "deleted")


def doors(environment: DevEnvironment) -> list[str]:
    """The main one first. One of a kind without a service has the ports that were declared."""
    spec: Mapping[str, Any] = getattr(_hosted(environment), "spec", {})
    main = [str(environment.kind)] if environment.kind in SERVED else []
    return [*main, *(str(port["name"]) for port in spec.get("ports") or ())]


def door(environment: DevEnvironment, name: str) -> str:
    """What the door is called in its host name: nothing, for the main one."""
    known = doors(environment)
    if not known:
        raise ApiError(409, "ENVIRONMENT_HAS_NO_DOORS", "door", environment=environment.name)
    if name and name not in known:
        raise ApiError(404, "DOOR_UNKNOWN", "door", door=name[:63], doors=", ".join(known))
    return "" if name in ("", known[0]) else name


def asked(environment: DevEnvironment, name: str) -> str:
    """What the door of a host name is called where it is dialled; "" = it has no such door (any more)."""
    known = doors(environment)
    if not name:
        return known[0] if known else ""
    return name if name in known[1:] else ""


def state(environment: DevEnvironment) -> str:
    """Of its life, where the platform makes it; else of what is known of it."""
    hosted = _hosted(environment)
    return hosted.state if hosted else environment.status


def run(environment: DevEnvironment) -> int:
    hosted = _hosted(environment)
    return hosted.run if hosted else 0


def _hosted(environment: DevEnvironment) -> Hosted | None:
    return getattr(environment, "hosted", None)
