"""Which container engine this host has, looked at beside all else: one that hangs keeps no heartbeat waiting."""

import threading
from pathlib import Path

from fermi.engines.local import container_engines

PATIENCE_SECONDS = 3.0
"""How long the first telling of a host's facts waits for it; what is seen later is told later."""


class Engines:
    """`words`: what the platform is told, empty for none. `folder`: where the look may leave an empty folder."""

    def __init__(self, folder: Path, *, wanted: bool) -> None:
        self.wanted, self.words = wanted, ""
        self._folder = folder
        self._looked = threading.Event()

    def look(self) -> str:
        found = container_engines.find(self._folder)
        self.words = found.words if found else ""
        self._looked.set()
        return self.words

    def soon(self) -> str:
        if self.wanted:
            self._looked.wait(PATIENCE_SECONDS)
        return self.words
