"""From where a task would go on, as a line for whoever stops, pauses or retries it."""

from contextlib import suppress

from fermi.cli import output
from fermi.cli.options import Session
from fermi.client import FermiError


def say_resume_point(session: Session, task: str) -> None:
    """Says which checkpoint is the newest and what is lost; nothing where the platform does not know."""
    with suppress(FermiError):
        if point := session.fermi.tasks.diagnosis(task).get("resumePoint"):
            output.say(f"{task}: {point['message']}")
