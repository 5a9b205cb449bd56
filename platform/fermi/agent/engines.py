"""Detects the container engine of this host in a thread of its own: one that hangs delays no heartbeat."""

import threading
from pathlib import Path

from fermi.engines.local import container_engines

WAIT_SECONDS = 3.0
"""How long the first report of a host's facts waits for it; a later result is reported later."""


class ContainerEngineLookup:
    """`words`: what is reported to the platform, empty for none. `folder`: where the check may leave an empty
    folder."""

    def __init__(self, folder: Path, *, wanted: bool) -> None:
        self.wanted, self.words = wanted, ""
        self._folder = folder
        self._looked = threading.Event()

    def look(self) -> str:
        """Check for an engine and return its description."""
        found = container_engines.find_container_engine(self._folder)
        self.words = found.words if found else ""
        self._looked.set()
        return self.words

    def soon(self) -> str:
        """Return the description, after waiting for the first check for a moment."""
        if self.wanted:
            self._looked.wait(WAIT_SECONDS)
        return self.words
