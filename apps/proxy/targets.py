"""Services of an environment that the proxy serves, and the state behind them."""

from collections.abc import Mapping
from typing import Any

from apps.clusters.models import DevEnvironment, EnvironmentKind
from apps.common.errors import ApiError
from apps.environments.models import Hosted

KINDS_WITH_SERVICE = (EnvironmentKind.JUPYTER, EnvironmentKind.VSCODE)
"""Kinds with a service of their own, which is the main one."""
STARTING_STATES = ("creating", "starting")
STOPPED_STATES = ("stopping", "stopped", "failed", "deleted")


def list_services(environment: DevEnvironment) -> list[str]:
    """Return the names of the environment's services, the main one first. Kinds without a service have the declared
    ports."""
    spec: Mapping[str, Any] = getattr(_get_hosted(environment), "spec", {})
    main = [str(environment.kind)] if environment.kind in KINDS_WITH_SERVICE else []
    return [*main, *(str(port["name"]) for port in spec.get("ports") or ())]


def check_service(environment: DevEnvironment, name: str) -> str:
    """Return the service's name in the host name: empty for the main one. Raises ApiError 404 or 409."""
    known = list_services(environment)
    if not known:
        raise ApiError(409, "ENVIRONMENT_HAS_NO_DOORS", "door", environment=environment.name)
    if name and name not in known:
        raise ApiError(404, "DOOR_UNKNOWN", "door", door=name[:63], doors=", ".join(known))
    return "" if name in ("", known[0]) else name


def resolve_service(environment: DevEnvironment, name: str) -> str:
    """Return the service's name for the daemon from that in the host name; "" if there is no such service (any
    more)."""
    known = list_services(environment)
    if not name:
        return known[0] if known else ""
    return name if name in known[1:] else ""


def get_state(environment: DevEnvironment) -> str:
    """Return the state of a managed environment, else the stored status."""
    hosted = _get_hosted(environment)
    return hosted.state if hosted else environment.status


def get_run_number(environment: DevEnvironment) -> int:
    """Return the number of the present run, 0 if the platform does not manage the environment."""
    hosted = _get_hosted(environment)
    return hosted.run if hosted else 0


def _get_hosted(environment: DevEnvironment) -> Hosted | None:
    return getattr(environment, "hosted", None)
