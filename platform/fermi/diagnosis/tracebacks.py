"""Finds what ended a rank in the tail of its log. Pure, linear in the tail, and never raises.

A log holds more errors than the one that ended its rank: caught ones, those of threads and of helpers, and what was
printed while the process went down. A process ends by one exception of its main thread, whose traceback begins at
`<module>`; without one, the first in time after which the script did not continue explains. Of a chain of exceptions it
is the first one with a line of the user's own: a library's own intermediate errors are wrapped in what it reports in
the end.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fermi.carriage_returns import render_lines

MAX_BYTES = 128 << 10
"""Bytes of a log's tail that are read."""
MAX_LINES = 4000
MAX_LINE_LENGTH = 1000
MAX_MESSAGE_LENGTH = 500
MAX_EVIDENCE_LINES = 24
SURVIVED_LINES = 40
"""So many other lines after a traceback show that the script continued."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_HEADER = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "([^"]+)", line (\d+)(?:, in (.+))?$')
_FATAL_FRAME = re.compile(r'  File "([^"]+)", line (\d+) in (.+)$')
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?:: ?(.*))?$")
_WRONG_SYNTAX = re.compile(r"(SyntaxError|IndentationError|TabError): (.*)$")
_FATAL = "Fatal Python error: "
_TERMINATE = "terminate called after throwing an instance of '"
_PANIC = re.compile(r"thread '[^']*'(?: \(\d+\))? panicked at (?:'(?P<old>.*)', )?(?P<at>\S+:\d+(?::\d+)?):?$")
_CHAINED = ("The above exception was the direct cause of", "During handling of the above exception, another")
_SURVIVED = ("Exception ignored in", "Exception in thread ", "--- Logging error ---", "Exception ignored while")
_WRAPPED = re.compile(r"Caught \w+ in \w+ worker process|RemoteTraceback|ProcessRaisedException|Process \d+ terminated")
_LAUNCHER_ERRORS = ("ChildFailedError", "ProcessRaisedException", "ProcessExitedException", "SignalException")
"""Exceptions of torch's launchers where a process that they have started fails, or when they are asked to end."""
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/fermi/", "/lib/python3", "/lib64/python3")
_STEP = ('{"step"', '{"event"', "{'loss'", '{"loss"')

MAX_CHAINED = 4


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str

    @property
    def own(self) -> bool:
        """Whether it is in the user's script, and in no library."""
        return not self.file.startswith("<") and not any(part in self.file for part in _LIBRARIES)

    def __str__(self) -> str:
        name = self.file.rpartition("/")[2]
        return f"{name}:{self.line}" + (f" in {self.function}" if self.function not in ("", "<module>") else "")


@dataclass(frozen=True, slots=True)
class Crash:
    """`type`: without its module. `frames`: the innermost last. `begin`, `end`: of its lines. `chained`: the next one
    belongs to it, as its consequence or as what it `wraps`. `survived`: the script continued after it, or it was no
    exception of the main thread. `lines`: as they were printed, and what belongs to it; `chain`: the types of all
    exceptions in the chain. `launched`: a child's, which a launcher reported and then ended by."""

    type: str
    message: str
    frames: Sequence[Frame]
    begin: int
    end: int
    chained: bool = False
    wraps: bool = False
    survived: bool = False
    lines: Sequence[str] = ()
    chain: Sequence[str] = ()
    launched: bool = False

    @property
    def own(self) -> Frame | None:
        return next((frame for frame in reversed(self.frames) if frame.own), None)

    @property
    def at(self) -> str:
        return str(self.own or "")

    @property
    def exception(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def lacks_variable(self) -> bool:
        """Whether `os.environ` lacked a variable: `message` is the name, in quotes. Since Python 3.11 `os` is frozen
        into the interpreter."""
        last = self.frames[-1] if self.frames else None
        of_os = last is not None and (last.file == "<frozen os>" or last.file.endswith("/os.py"))
        return of_os and self.type == "KeyError" and last is not None and last.function == "__getitem__"

    @property
    def of_main(self) -> bool:
        return bool(self.frames) and self.frames[0].function in ("<module>", "_run_module_as_main", "")


def find_steps_end(lines: Sequence[str]) -> int:
    """Return the index after the last line that reported a step: what ended the rank comes after."""
    return max((index + 1 for index, line in enumerate(lines) if line.startswith(_STEP)), default=0)


def split_lines(tail: bytes | str) -> list[str]:
    """Return the lines as a terminal would show them in the end."""
    data = tail[-MAX_BYTES:] if isinstance(tail, bytes) else tail[-MAX_BYTES:].encode(errors="replace")
    text = _COLOUR.sub("", render_lines(data).decode(errors="replace").replace("\0", ""))
    return [line[:MAX_LINE_LENGTH] for line in text.split("\n")[-MAX_LINES:]]


def find_crash(lines: Sequence[str]) -> Crash | None:
    """Return what ended the rank, or the nearest to it; None: no crash was found."""
    ends = [chain for chain in _group_chains(list_crashes(lines)) if not any(crash.survived for crash in chain)]
    mains = [chain for chain in ends if any(crash.of_main for crash in chain)]
    if not ends:
        return None
    chain = mains[-1] if mains else ends[0]
    launcher: list[Crash] = []
    if chain[-1].type in _LAUNCHER_ERRORS and (of_child := next(filter(_is_raised_by_script, ends), None)):
        chain, launcher = of_child, chain
    inner = [crash for crash in chain if not crash.wraps] or chain
    root = next((crash for crash in (*inner, *chain) if crash.own), inner[-1])
    types = [crash.type for crash in (*chain, *launcher)]
    came_of_it = [crash.exception for crash in chain if crash is not root][-MAX_CHAINED:]
    shown = [*_shorten_lines(lines[root.begin : root.end]), *came_of_it]
    return replace(root, lines=shown, end=chain[-1].end, chain=types, launched=bool(launcher))


def _is_raised_by_script(chain: Sequence[Crash]) -> bool:
    """Return whether the script's own code raised it, not a launcher that only reports a child."""
    return chain[-1].type not in _LAUNCHER_ERRORS and any(crash.own for crash in chain)


def list_crashes(lines: Sequence[str]) -> Iterator[Crash]:
    """Yield all crashes, in their order."""
    at, last = 0, len(lines)
    last_step = find_steps_end(lines) - 1
    while at < last:
        line = lines[at]
        found: Crash | None = None
        if _HEADER in line:
            found = _parse_traceback(lines, at)
        elif line.startswith(_FATAL):
            found = _parse_fatal(lines, at)
        elif _TERMINATE in line:
            found = _parse_terminate(lines, at)
        elif "panicked at" in line:
            found = _parse_panic(lines, at)
        elif line.startswith('  File "'):
            found = _parse_syntax_error(lines, at)
        if found is None:
            at += 1
            continue
        went_on = found.end < last_step or _count_other_lines(lines, found.end) > SURVIVED_LINES
        yield replace(found, survived=True) if went_on and not found.chained else found
        at = max(found.end, at + 1)


def _count_other_lines(lines: Sequence[str], begin: int) -> int:
    """Return how many lines after it are not an error's: those of a traceback are indented or hold one."""
    plain = 0
    for line in lines[begin : begin + 8 * SURVIVED_LINES]:
        if _HEADER in line:
            break
        plain += bool(line.strip()) and not line.startswith((" ", "[rank", "frame #"))
    return plain


def _group_chains(crashes: Iterable[Crash]) -> Iterator[list[Crash]]:
    chain: list[Crash] = []
    for crash in crashes:
        chain.append(crash)
        if not crash.chained:
            yield chain
            chain = []
    if chain:
        yield chain


def _parse_traceback(lines: Sequence[str], begin: int) -> Crash | None:
    before, _, _ = lines[begin].partition(_HEADER)
    prefix = _find_prefix(before, lines[begin + 1 : begin + 3])
    survived = any(line.startswith(_SURVIVED) for line in lines[max(0, begin - 1) : begin + 1])
    frames: list[Frame] = []
    at = begin + 1
    skipped = 0
    while at < len(lines):
        line = lines[at]
        if prefix and not line.startswith(prefix):
            skipped += 1
            if skipped > SURVIVED_LINES:
                return None
            at += 1
            continue
        text = line[len(prefix) :]
        if _HEADER in text:
            return None  # another one's begins
        if match := _FRAME.match(text):
            frames.append(Frame(match[1], int(match[2][:9]), match[3] or ""))
        elif text.startswith(" ") or not text.strip():
            if not text.strip() and not frames:
                return None
        elif match := _EXCEPTION.match(text):
            return _build_crash(lines, begin, at, prefix, match, frames, survived)
        else:  # somebody else's line in between
            skipped += 1
            if skipped > SURVIVED_LINES:
                return None
        at += 1
    return None


def _find_prefix(before: str, following: Sequence[str]) -> str:
    """Return what precedes each line of the traceback: `[rank0]: `, the margin of a group. A logger writes its own
    once."""
    if before.strip() == "traceback :":  # in what torch's launcher lists of its children
        return before[: len(before) - len(before.lstrip())]
    before = before.removesuffix("Original ").removesuffix("Exception Group ").replace("+", "|")
    return before if before and any(line.startswith(f"{before}  File ") for line in following) else ""


def _build_crash(
    lines: Sequence[str], begin: int, at: int, prefix: str, match: re.Match[str], frames: list[Frame], survived: bool
) -> Crash:
    name, message, end = match[1].rpartition(".")[2], match[2] or "", at + 1
    more = [line.removeprefix(prefix).strip() for line in lines[end : end + 6]]
    is_group = bool(more) and more[0].startswith("+-+-")
    wraps = any(_WRAPPED.search(line) for line in (match[0], *more[:3])) or (
        is_group and any(_HEADER in line for line in more)
    )
    if is_group and not wraps and len(more) > 1 and (member := _EXCEPTION.match(more[1].lstrip("| "))):
        name, message = member[1].rpartition(".")[2], member[2] or ""
    elif not message.strip() or message.rstrip().endswith(":"):
        said = next((line for line in more[:2] if line), "")
        message = message if _HEADER in said or said.startswith((*_CHAINED, '"""')) else f"{message} {said}".strip()
    chained = wraps or any(line.startswith(_CHAINED) for line in more)
    return Crash(name, message[:MAX_MESSAGE_LENGTH], frames, begin, end, chained, wraps, survived)


def _parse_fatal(lines: Sequence[str], begin: int) -> Crash:
    what = lines[begin].removeprefix(_FATAL).strip()
    frames: list[Frame] = []
    end, ours = begin + 1, False
    for index in range(begin + 1, min(begin + 400, len(lines))):
        line = lines[index]
        if line.startswith(("Current thread ", "Thread ")):
            ours, end = line.startswith("Current thread ") or (ours and not frames), index + 1
        elif match := _FATAL_FRAME.match(line):
            end = index + 1
            if ours:
                frames.append(Frame(match[1], int(match[2][:9]), match[3]))
        elif line.strip() and not line.startswith((" ", "Extension modules", "<")):
            break
    return Crash(what[:MAX_MESSAGE_LENGTH], "", list(reversed(frames)), begin, end)


def _parse_terminate(lines: Sequence[str], begin: int) -> Crash:
    name = lines[begin].partition(_TERMINATE)[2].partition("'")[0]
    said = lines[begin + 1].strip() if begin + 1 < len(lines) else ""
    message = said.removeprefix("what():").strip() if said.startswith("what():") else ""
    return Crash(name[:100], message[:MAX_MESSAGE_LENGTH], (), begin, begin + (2 if message else 1))


def _parse_panic(lines: Sequence[str], begin: int) -> Crash | None:
    match = _PANIC.search(lines[begin])
    if match is None:
        return None
    following = lines[begin + 1].strip() if begin + 1 < len(lines) else ""
    file, _, line = match["at"].rpartition(":")
    while (head := file.rpartition(":"))[2].isdecimal():
        file, line = head[0], head[2]
    said = match["old"] if match["old"] is not None else following
    frames = [Frame(file, int(line[:9]) if line.isdecimal() else 0, "")]
    return Crash("panic", said[:MAX_MESSAGE_LENGTH], frames, begin, begin + 2)


def _parse_syntax_error(lines: Sequence[str], begin: int) -> Crash | None:
    """Return the crash of a script that is not Python: one frame, and no header."""
    match = _FRAME.match(lines[begin])
    if match is None or match[3]:
        return None
    for index in range(begin + 1, min(begin + 6, len(lines))):
        if wrong := _WRONG_SYNTAX.match(lines[index]):
            frames = [Frame(match[1], int(match[2][:9]), "")]
            return Crash(wrong[1], wrong[2][:MAX_MESSAGE_LENGTH], frames, begin, index + 1)
    return None


def _shorten_lines(lines: Sequence[str]) -> Sequence[str]:
    """Return the beginning and the end of the lines."""
    if len(lines) <= MAX_EVIDENCE_LINES:
        return list(lines)
    return [lines[0], "…", *lines[-(MAX_EVIDENCE_LINES - 2) :]]
