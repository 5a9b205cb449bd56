"""What `.gitignore` leaves out is what git leaves out."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from fermi.runner import tree
from fermi.runner.code import ManifestError

PATHS = [
    "a", "b.py", "b.pyc", "build/out.o", "build/keep/x", "src/build/y.py", "src/a/b/c.txt", "src/a/c.txt", "doc/a.md",
    "doc/x/a.md", "#hash", "!bang", "sp ace", "trail ", "x[1].txt", "x1.txt", "xa.txt", "x-.txt", "star*.c",
    "deep/a/b/d/e.py", "deep/a/e.py", "foo/bar/baz", "foo/b", "lib/.hidden", ".env", "back\\slash",
    "data/2024/one.csv", "été/où.txt",
]  # fmt: skip
LINES = [
    "*.pyc", "build/", "/build", "build/*", "!build/keep", "!build/keep/", "src/**/c.txt", "**/a.md", "doc/**", "doc/*",
    "\\#hash", "\\!bang", "!bang", "#hash", "sp ace", "trail\\ ", "trail ", "x[0-9].txt", "x[!0-9].txt", "x[^a].txt",
    "x\\[1\\].txt", "x[[]1].txt", "x[a-].txt", "x[[:alpha:]].txt", "x[]-].txt", "star\\*.c", "star*", "**", "!**/",
    "a/**/e.py",
    "deep/**/e.py", "deep/a/**/e.py", "foo/", "!foo/b", "/foo/bar", "**/bar/**", "*", "!*/", "!*.py", ".*", "?", "??",
    "data/2024", "data/**/*.csv", "x[", "x\\", "été", "**foo/b", "foo**b", "***/c.txt", "back\\\\slash",
    "/", "", " ", "b.py\r",
    "src/a/../a/c.txt", "x[z-a].txt", "x[\\]1].txt", "/*", "!/src", "[a-c]*", "a/", "!a",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".git" / "info" / "exclude").unlink(missing_ok=True)
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    return tmp_path


def kept_by_git(folder: Path) -> list[str]:
    words = ["git", "-C", str(folder), "-c", "core.excludesFile=/dev/null", "ls-files", "-oz", "--exclude-standard"]
    return sorted(filter(None, subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\0")))


def test_every_pattern_matches_as_in_git(folder: Path) -> None:
    chance = random.Random(7)
    files = [[line] for line in LINES]
    files += [chance.choices(LINES, k=chance.randint(2, 6)) for _ in range(150)]
    for number, lines in enumerate(files):
        below = folder / "src" / ".gitignore"
        (folder / ".gitignore").write_text("\n".join(lines), newline="")
        below.unlink(missing_ok=True)
        if number % 3 == 2:
            below.write_text("\n".join(chance.choices(LINES, k=2)))
        assert [one.path for one in tree.list_files(folder)] == kept_by_git(folder), lines


def test_fermiignore_overrides_and_a_pipe_is_ignored(folder: Path) -> None:
    shutil.rmtree(folder / ".git")
    (folder / ".gitignore").write_text("*\n")
    (folder / ".fermiignore").write_text("!b.py\n")
    assert [one.path for one in tree.list_files(folder)] == ["b.py"]
    (folder / ".fermiignore").write_text("!b.py\n!pipe\n")
    subprocess.run(["mkfifo", str(folder / "pipe")], check=True)
    with pytest.raises(ManifestError, match="SNAPSHOT_SPECIAL_FILE"):
        tree.list_files(folder)


def test_jupyter_checkpoints_and_python_caches_are_excluded_unless_included(tmp_path: Path) -> None:
    for path in ("a.py", ".ipynb_checkpoints/a-checkpoint.py", "lib/__pycache__/b.pyc", "lib/b.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    assert [one.path for one in tree.list_files(tmp_path)] == ["a.py", "lib/b.py"]
    (tmp_path / ".fermiignore").write_text("!__pycache__/\n")
    assert [one.path for one in tree.list_files(tmp_path)] == [
        ".fermiignore",
        "a.py",
        "lib/__pycache__/b.pyc",
        "lib/b.py",
    ]


def test_a_folder_within_a_foreign_repository_does_not_use_its_rules(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init", "-q")
    inside, tracked = tmp_path / "var" / "mine", tmp_path / "src"
    for folder in (inside, tracked):
        folder.mkdir(parents=True)
        (folder / "train.py").write_text("x")
    (tmp_path / ".gitignore").write_text("/var/\n")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    assert tree.read_origin(inside) == ({}, "")
    said, patch = tree.read_origin(tracked)
    assert (len(said["commit"]), said["dirty"], patch) == (40, False, "")
