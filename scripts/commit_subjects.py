"""Check the subjects of commits: `area: Imperative sentence`, below 72 characters (docs/naming.md).

python scripts/commit_subjects.py            those since the rule (`make check`)
python scripts/commit_subjects.py FILE       the message in FILE (the commit-msg hook)
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SINCE = "81a60b300218"
"""The last commit before the rule."""
MAX_LENGTH = 71
SUBJECT = re.compile(r"[a-z][a-z0-9./_-]*: (?P<verb>[A-Z][a-zA-Z-]*) \S.*[^.\s]")
NO_VERBS = {"A", "An", "All", "And", "The", "This", "What", "Who", "Where", "One", "No", "Some", "Each", "Every", "Its"}


def find_problem(subject: str) -> str:
    """Return what is wrong with a subject; an empty string where nothing is."""
    if len(subject) > MAX_LENGTH:
        return f"{len(subject)} characters; at most {MAX_LENGTH}"
    if not (matched := SUBJECT.fullmatch(subject)):
        return "expected `area: Imperative sentence`, one area and no full stop"
    verb = matched["verb"]
    if verb in NO_VERBS or (
        verb.endswith(("ed", "ing")) and verb not in {"Bring", "Embed", "Feed", "Ping", "Seed", "Speed"}
    ):
        return f"expected a verb in the imperative after the area, found {verb!r}"
    return ""


def list_subjects() -> list[str]:
    """Return the subjects since the rule; only the newest one where this clone's history does not reach so far."""
    for commits in (["HEAD", f"^{SINCE}"], ["--max-count=1", "HEAD"]):
        done = subprocess.run(
            ["git", "-C", str(ROOT), "log", "--no-merges", "--format=%s", *commits], capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode == 0:
            return done.stdout.splitlines()
    return []


def main(words: list[str]) -> int:
    subjects = [Path(words[0]).read_text("utf-8").partition("\n")[0]] if words else list_subjects()
    wrong = {subject: problem for subject in subjects if (problem := find_problem(subject))}
    for subject, problem in wrong.items():
        print(f"{subject!r}: {problem}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
