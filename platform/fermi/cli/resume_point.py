"""The checkpoint from which a task would continue, printed before it is stopped, paused or retried."""

from contextlib import suppress

from fermi.cli import output
from fermi.cli.options import Session
from fermi.client import FermiError


def print_resume_point(session: Session, task: str) -> None:
    """Print the newest checkpoint and the progress that would be lost; nothing where the platform does not know."""
    with suppress(FermiError):
        if point := session.fermi.tasks.diagnosis(task).get("resumePoint"):
            output.print_message(f"{task}: {point['message']}")
