"""What `make test` remembers of its last ten runs in build/ledger.json, and what `make check` refuses for it.

A run names a test for one of two things. *Unsteady*: it failed in company and passed alone. *Slow*: it took over a
minute, and over a twentieth of what all tests of its part took together; a loaded machine stretches both sides alike.
A test that two of the last ten runs name fails `make check`. Nothing but a person who has found the cause can say that
it is mended, so that is how a name goes before its runs do: `python scripts/flaky_tests.py mended TEST`.
"""

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "build" / "ledger.json"
KEPT = 10
TOO_OFTEN = 2
SLOW_S = 120.0
SLOW_SHARE = 1 / 20
NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Of what a file can hold (XML 1.0, 2.2)."""
UNSTEADY = "failed in company, passed alone"


@dataclass(frozen=True)
class Outcome:
    """Of a test, as JUnit's XML has it: `name` is `file::test`, as pytest takes it."""

    name: str
    seconds: float
    failed: bool = False


@dataclass(frozen=True)
class Run:
    """One `make test`. `named`: what is to be mended, by test."""

    began: str
    commit: str
    parts: Mapping[str, float]
    named: Mapping[str, str]


def read_junit(path: Path) -> list[Outcome]:
    """Of pytest, vitest and node alike; empty where the part wrote none. Node writes what a test failed with as it is,
    colours for a terminal too, which XML has no place for."""
    if not path.exists():
        return []
    text = NOT_IN_XML.sub("", path.read_text(encoding="utf-8", errors="replace"))
    return [
        Outcome(
            _name(case), float(case.get("time") or 0), any(case.find(end) is not None for end in ("failure", "error"))
        )
        for case in ET.fromstring(text.encode()).iter("testcase")
    ]


def _name(case: ET.Element) -> str:
    """pytest names the file, and a class behind its module; vitest names the file as the class; node neither."""
    file, within, name = (case.get(key) or "" for key in ("file", "classname", "name"))
    if file:
        inner = within.removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".").replace(".", "::")
        return "::".join(part for part in (file, inner, name) if part)
    return name if within == "test" else f"{within}::{name}"


def remarks(tests: Sequence[Outcome], failed_again: Collection[str] | None) -> dict[str, str]:
    """What one part's tests are named for. `failed_again`: of those that failed, the ones that failed alone too; None
    where they were not run again, so that nobody knows."""
    whole = sum(test.seconds for test in tests)
    bound = max(SLOW_S, whole * SLOW_SHARE)
    named = {test.name: f"took {test.seconds:.0f} of {whole:.0f} s" for test in tests if test.seconds > bound}
    if failed_again is not None:
        named |= {test.name: UNSTEADY for test in tests if test.failed and test.name not in failed_again}
    return named


def too_often(runs: Iterable[Run]) -> dict[str, list[str]]:
    """Tests that enough runs name, with when and why."""
    found: dict[str, list[str]] = {}
    for run in list(runs)[-KEPT:]:
        for name, why in run.named.items():
            found.setdefault(name, []).append(f"{run.began} at {run.commit}: {why}")
    return {name: whys for name, whys in sorted(found.items()) if len(whys) >= TOO_OFTEN}


def mended(runs: Iterable[Run], name: str) -> list[Run]:
    """As if no run had named the test."""
    return [
        Run(run.began, run.commit, run.parts, {other: why for other, why in run.named.items() if other != name})
        for run in runs
    ]


def load(file: Path | None = None) -> list[Run]:
    """No run where there is no ledger: a fresh clone owes nothing."""
    file = file or FILE
    if not file.exists():
        return []
    return [Run(**run) for run in json.loads(file.read_text(encoding="utf-8"))]


def save(runs: Sequence[Run], file: Path | None = None) -> None:
    file = file or FILE
    file.parent.mkdir(exist_ok=True)
    text = json.dumps([asdict(run) for run in runs[-KEPT:]], indent=1, ensure_ascii=False)
    file.with_suffix(".new").write_text(text + "\n", encoding="utf-8")
    file.with_suffix(".new").replace(file)


def main(words: Sequence[str]) -> int:
    """`mended TEST`, or without words: what is named too often."""
    runs = load()
    match words:
        case []:
            found = too_often(runs)
            for name, whys in found.items():
                print("\n  ".join([name, *whys]))
            if found:
                print(f"\nNamed in {TOO_OFTEN} of {KEPT} runs of `make test`. Find the cause, mend it, then say so:")
                print("  .venv/bin/python scripts/flaky_tests.py mended 'TEST'")
            return 1 if found else 0
        case ["mended", name] if any(name in run.named for run in runs):
            save(mended(runs, name))
            return 0
        case ["mended", name]:
            print(f"No run of the last {KEPT} names {name}.")
            return 1
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
