"""Record flaky tests in tests/flaky.toml, for `make test`, and refuse entries that stay open, for `make check`.

A test is flaky if it failed among the others and passed alone. `make test` adds each to the record, with the day and
the commit: commit that change. Whoever finds the cause writes it as `why`, and what was changed as `done`. When the
test is flaky again, the entry is open again: `done` is emptied. `make check` fails for an open entry with two
occurrences, and for one whose test no longer exists.

`make test` also names slow tests, which it does not record: those that took over two minutes, and over a twentieth of
what all tests of their part took together; a loaded machine stretches both sides alike.
"""

import json
import re
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD_FILE = ROOT / "tests" / "flaky.toml"
MAX_SEEN = 10
MAX_FAILURES = 2
SLOW_SECONDS = 120.0
SLOW_SHARE = 1 / 20
NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Of what a file can hold (XML 1.0, 2.2)."""
HEADER = """\
# Tests that failed among the others and passed alone: `make test` adds them, people say why and what was done.
# scripts/flaky_tests.py says what `make check` refuses.
"""


@dataclass(frozen=True)
class CaseOutcome:
    """Outcome of a test in JUnit's XML; `name` is `file::test`, as pytest takes it."""

    name: str
    seconds: float
    failed: bool = False


@dataclass(frozen=True)
class FlakyTest:
    """A flaky test. `seen`: day and commit of each occurrence, newest last; `why` and `done` are empty until somebody
    knows."""

    test: str
    seen: tuple[str, ...]
    why: str = ""
    done: str = ""


def read_junit(path: Path) -> list[CaseOutcome]:
    """Return the outcomes in the file, of pytest, vitest or node; an empty list where the part wrote none. Node writes
    a failure's output unchanged, with colour codes that XML does not allow; they are removed."""
    if not path.exists():
        return []
    text = NOT_IN_XML.sub("", path.read_text(encoding="utf-8", errors="replace"))
    return [
        CaseOutcome(
            _name_test(case),
            float(case.get("time") or 0),
            any(case.find(end) is not None for end in ("failure", "error")),
        )
        for case in ET.fromstring(text.encode()).iter("testcase")
    ]


def _name_test(case: ET.Element) -> str:
    """Return `file::test`. pytest names the file, and a class after its module; vitest names the file as the class;
    node neither."""
    file, within, name = (case.get(key) or "" for key in ("file", "classname", "name"))
    if file:
        inner = within.removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".").replace(".", "::")
        return "::".join(part for part in (file, inner, name) if part)
    return name if within == "test" else f"{within}::{name}"


def find_slow(tests: Sequence[CaseOutcome]) -> dict[str, str]:
    """Return the tests of one part that took too long, with their seconds."""
    whole = sum(test.seconds for test in tests)
    bound = max(SLOW_SECONDS, whole * SLOW_SHARE)
    return {test.name: f"took {test.seconds:.0f} of {whole:.0f} s" for test in tests if test.seconds > bound}


def find_flaky(tests: Sequence[CaseOutcome], failed_again: Collection[str] | None) -> list[str]:
    """Return the tests of one part that failed among the others but not alone. `failed_again`: those that also failed
    alone; None where they were not run again, so that nobody knows."""
    return [test.name for test in tests if failed_again is not None and test.failed and test.name not in failed_again]


def load_record(file: Path = RECORD_FILE) -> list[FlakyTest]:
    """Return the record. Raise TypeError for an unknown field, tomllib.TOMLDecodeError for invalid TOML."""
    if not file.exists():
        return []
    found = tomllib.loads(file.read_text(encoding="utf-8")).get("flaky", [])
    return [replace(entry, seen=tuple(entry.seen)) for entry in (FlakyTest(**fields) for fields in found)]


def save_record(entries: Iterable[FlakyTest], file: Path = RECORD_FILE) -> None:
    """Write the record, sorted by the tests' names."""
    text = HEADER
    for entry in sorted(entries, key=lambda entry: entry.test):
        seen = ", ".join(_quote(each) for each in entry.seen[-MAX_SEEN:])
        text += f"\n[[flaky]]\ntest = {_quote(entry.test)}\nseen = [{seen}]\n"
        text += f"why = {_quote(entry.why)}\ndone = {_quote(entry.done)}\n"
    file.write_text(text, encoding="utf-8")


def _quote(text: str) -> str:
    """Return a TOML basic string: JSON's, but with DEL escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def add_to_record(entries: Iterable[FlakyTest], test: str, seen: str) -> list[FlakyTest]:
    """Return the entries with an open one for a test that was flaky."""
    found = {entry.test: entry for entry in entries}
    before = found.get(test, FlakyTest(test, ()))
    return list({**found, test: replace(before, seen=(*before.seen, seen), done="")}.values())


def find_problems(entries: Iterable[FlakyTest], root: Path = ROOT) -> list[str]:
    """Return what `make check` refuses, one line each."""
    found = []
    for entry in entries:
        if not _exists(entry.test, root):
            found.append(f"{entry.test}: there is no such test (any more): remove the entry")
        elif len(entry.seen) >= MAX_FAILURES and not entry.done:
            found.append(f"{entry.test}: seen {', '.join(entry.seen)}: find the cause, then write `why` and `done`")
        elif entry.done and not entry.why:
            found.append(f"{entry.test}: `done` without `why`")
    return found


def _exists(test: str, root: Path) -> bool:
    """Return True if the test still exists: pytest's by file and function, vitest's by file, node's by a title in a
    file."""
    file, _, name = test.partition("::")
    if not name:
        return any(f'"{test}"' in path.read_text(encoding="utf-8") for path in root.glob("frontend/e2e/*.js"))
    path = root / file
    if not file.endswith(".py"):
        return path.is_file() or (root / "frontend" / file).is_file()
    function = re.escape(name.partition("[")[0].rpartition("::")[2])
    return path.is_file() and bool(re.search(rf"^\s*(async )?def {function}\(", path.read_text("utf-8"), re.M))


def main() -> int:
    found = find_problems(load_record())
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
