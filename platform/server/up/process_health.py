"""Supervision of the platform's processes: replaces one that hangs or whose limits another process has changed, and
writes the notes that `/readyz` shows."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fermi import messages
from fermi.runner import files
from server.up import console, limits, watchdog
from server.up.child import ChildProcess
from server.up.pidfile import PlatformProcess
from server.up.watchdog import MAX_STALL_SECONDS, Watchdog

CHECK_INTERVAL_SECONDS = 5.0
GRACE_SECONDS = 15.0
"""Seconds from the request to end until a process that hangs is killed."""
NOTE_LIFETIME_SECONDS = 3600.0
"""How long a note is kept after its cause has gone, in seconds."""
REPLACE_PAUSE_SECONDS = 60.0, 3600.0
"""Seconds between two replacements of a process that is changed again and again: the first pause, which doubles, and
the longest."""
SUPERVISOR_NAME = "make up"


@dataclass
class _WatchedProcess:
    """A supervised process. `changed`: settings that differed at the last check; `reported`: codes that were
    reported."""

    process: PlatformProcess
    watchdog: Watchdog
    changed: set[str] = field(default_factory=set)
    reported: set[str] = field(default_factory=set)
    is_ending: bool = False


class ProcessSupervision:
    """Checks all children. `pid`: the supervisor's. `notes`: the file that `/readyz` reads. `standing`: notes that hold
    for as long as it runs."""

    def __init__(self, pid: int, notes: Path, lasting: Sequence[dict[str, Any]] = ()) -> None:
        self._pid, self._path, self._standing = pid, notes, lasting
        self._start = limits.read_process_settings(pid)
        self._at = time.monotonic()
        self._subjects: dict[str, _WatchedProcess] = {}
        self._pauses: dict[str, tuple[float, float]] = {}  # by name: not before, and the next pause
        self._notes: dict[tuple[str, str], dict[str, Any]] = {}
        self._written: list[dict[str, Any]] | None = None

    def check_children(self, children: Sequence[ChildProcess]) -> None:
        """Check all children; to be called every CHECK_INTERVAL_SECONDS. Where this process itself was stopped for
        longer, the extra time does not count as silence of the children."""
        at = time.monotonic()
        passed, self._at = min(at - self._at, 2 * CHECK_INTERVAL_SECONDS), at
        now = limits.read_process_settings(self._pid)
        unchanged = True
        for child in children:
            if (process := child.process) is None or not child.alive():
                continue
            subject = self._subjects.get(child.name)
            if subject is None or subject.process != process:
                patience = MAX_STALL_SECONDS.get(child.name.partition("-")[0], max(MAX_STALL_SECONDS.values()))
                subject = self._subjects[child.name] = _WatchedProcess(process, Watchdog(patience))
            if not subject.is_ending:
                self._judge(child, subject, passed)
                found = limits.read_process_settings(process.pid)
                unchanged &= not limits.find_changes(found, [self._start])
                self._compare(child, subject, limits.find_changes(found, [self._start, now]), at)
        mine = limits.find_changes(now, [self._start])
        if mine and unchanged:  # else the machine has changed it for all
            self._note_changed(SUPERVISOR_NAME, mine)
        self._write()

    def _judge(self, child: ChildProcess, subject: _WatchedProcess, passed: float) -> None:
        line = child.line
        if line is None:
            return
        verdict = subject.watchdog.check(
            passed, watchdog.query_process(line), watchdog.sample_process(subject.process.pid)
        )
        code = verdict.code if verdict else ""
        if verdict and code not in subject.reported:
            console.print_line(
                self._note(child.name, code, pid=subject.process.pid, seconds=verdict.seconds), fault=True
            )
        elif verdict:
            self._note(child.name, code, pid=subject.process.pid, seconds=verdict.seconds)
        subject.reported = (subject.reported - {"PROCESS_STOPPED"}) | ({code} if code else set())
        if verdict and verdict.ends:
            subject.is_ending = True
            child.replace(GRACE_SECONDS)

    def _compare(
        self, child: ChildProcess, subject: _WatchedProcess, changed: dict[str, tuple[str, str]], at: float
    ) -> None:
        """Replace a child whose settings differ at two successive checks: a change that the system makes for all
        processes reaches one after the other."""
        twice = {name: values for name, values in changed.items() if name in subject.changed}
        subject.changed = {*changed}
        if not twice:
            return
        said = self._note_changed(child.name, twice)
        if "PROCESS_CHANGED" not in subject.reported:
            console.print_line(said, fault=True)
            subject.reported.add("PROCESS_CHANGED")
        not_before, pause = self._pauses.get(child.name, (0.0, REPLACE_PAUSE_SECONDS[0]))
        if at >= not_before:
            self._pauses[child.name] = at + pause, min(2 * pause, REPLACE_PAUSE_SECONDS[1])
            subject.is_ending = True
            child.replace(GRACE_SECONDS)

    def _note_changed(self, name: str, changed: dict[str, tuple[str, str]]) -> str:
        what = "; ".join(f"{key} = {found} ({wanted})" for key, (found, wanted) in sorted(changed.items()))
        return self._note(name, "PROCESS_CHANGED", what=what)

    def _note(self, name: str, code: str, **params: object) -> str:
        """Store a note and return its text for the terminal."""
        self._notes[name, code] = {"code": code, "params": {"process": name, **params}, "at": round(time.time())}
        return " ".join(filter(None, messages.render_text(code, "en", process=name, **params)))

    def _write(self) -> None:
        oldest = time.time() - NOTE_LIFETIME_SECONDS
        self._notes = {
            key: note
            for key, note in self._notes.items()
            if note["at"] > oldest and (note["code"] != "PROCESS_STOPPED" or self._says(*key))
        }
        notes = [*self._standing, *self._notes.values()]
        if notes != self._written:
            with suppress(OSError):  # a full disk is no reason to end what runs
                files.write_json_atomically(str(self._path), notes, 0o600)
                self._written = notes

    def _says(self, name: str, code: str) -> bool:
        subject = self._subjects.get(name)
        return subject is not None and code in subject.reported
