"""What the platform says of training and does to it when it ends. Runners are detached: they are not its children."""

from pathlib import Path

from fermi.engines.local import engine
from fermi.jobs.spec import parse_attempt_name


def running(data: Path) -> list[str]:
    """Attempts of this machine's training."""
    return engine.list_running_attempts(data)


def still_running(data: Path) -> str:
    """One sentence for the person who has just pressed Ctrl-C."""
    attempts = running(data)
    if not attempts:
        return "stopped; no training was running."
    if len(attempts) == 1:
        return "stopped; 1 training task keeps running: `make up` picks it up again, `make down` stops it."
    return (
        f"stopped; {len(attempts)} training tasks keep running: `make up` picks them up again, `make down` stops them."
    )


def stop(data: Path) -> list[str]:
    """Ids of the tasks of which something was ended."""
    return [parse_attempt_name(attempt)[0] for attempt in engine.stop_everything(data)]
