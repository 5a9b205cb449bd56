"""Training on this machine when the platform starts or ends. Runners are detached: they are not children of the
platform."""

from pathlib import Path

from fermi.engines.local import engine
from fermi.runner.run_names import parse_run_name


def list_running(data: Path) -> list[str]:
    """Return the attempts that run on this machine."""
    return engine.list_running_attempts(data)


def describe_running(data: Path) -> str:
    """Return one sentence about training that continues, for the operator who has just pressed Ctrl-C."""
    attempts = list_running(data)
    if not attempts:
        return "stopped; no training was running."
    if len(attempts) == 1:
        return "stopped; 1 training task keeps running: `make up` picks it up again, `make down` stops it."
    return (
        f"stopped; {len(attempts)} training tasks keep running: `make up` picks them up again, `make down` stops them."
    )


def stop_tasks(data: Path) -> list[str]:
    """Stop everything that runs on this machine and return the ids of its tasks."""
    return [parse_run_name(attempt)[0] for attempt in engine.stop_everything(data)]
