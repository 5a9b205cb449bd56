"""Prepared packages of a node: what was wanted longest ago gives way, and nothing that is in use."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from fermi.runner import package_cache


def made(cache: Path, name: str, hours_ago: float) -> Path:
    folder = cache / name
    folder.mkdir()
    for lock in ("lock", "used"):
        (cache / f"{name}.{lock}").touch()
    (folder / package_cache.READY_NAME).write_text(json.dumps({"bytes": 100}))
    moment = time.time() - hours_ago * 3600
    os.utime(folder / package_cache.READY_NAME, (moment, moment))
    return folder


def test_the_least_recently_used_packages_are_removed_except_held_or_fresh_ones(tmp_path: Path) -> None:
    old, held, older, fresh = (
        made(tmp_path, name, hours) for name, hours in (("a", 5), ("b", 50), ("c", 9), ("d", 0.5))
    )
    descriptor = package_cache.acquire_environment(str(held))
    assert descriptor >= 0
    package_cache.evict_environments(tmp_path, 300)
    assert [folder.exists() for folder in (old, held, older, fresh)] == [True, True, False, True]
    package_cache.evict_environments(tmp_path, 0)
    assert [folder.exists() for folder in (old, held, older, fresh)] == [False, True, False, True]
    os.close(descriptor)
    package_cache.evict_environments(tmp_path, 100)
    assert not held.exists()
    assert package_cache.acquire_environment(str(tmp_path / "absent")) == -1


LOCK = """
[[package]]
name = "mine"
source = {{ {} }}
"""


@pytest.mark.parametrize(
    ("text", "kind", "by_tree", "by_place"),
    [
        ("numpy==2.0\n-r more.txt\n", "pip", False, False),
        ("--find-links ./lib\nname/with/slashes-that-is-nowhere\n", "pip", False, False),
        ("-e git+https://example.org/thing.git#egg=thing\n", "pip", False, False),
        ("# a/" + 300 * "long" + "\nnul/\0\n", "pip", False, False),
        ("./lib\n", "pip", True, False),
        ("lib/ ; python_version > '3'\n", "pip", True, False),
        ("mine[fast] @ file:lib\n", "pip", True, False),
        ("-e .\n", "pip", True, True),
        ("--editable=./lib[fast]  # ours\n", "pip", True, True),
        (LOCK.format('virtual = "."'), "uv", False, False),
        (LOCK.format('editable = "."'), "uv", False, False),
        (LOCK.format('directory = "lib"'), "uv", True, False),
        (LOCK.format('editable = "lib"'), "uv", True, True),
    ],
)
def test_packages_that_are_part_of_the_code_are_rebuilt_for_other_code(
    text: str, kind: str, by_tree: bool, by_place: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_cache, "_build_environment", lambda *about: about[4].mkdir())

    def folder(place: str, tree: str) -> Path:
        top = tmp_path / place
        (top / "lib").mkdir(parents=True, exist_ok=True)
        (top / "more.txt").touch()
        (top / "pyproject.toml").touch()
        (top / "asked").write_text(text)
        return package_cache.prepare_packages(sys.executable, str(top / "asked"), kind, tmp_path / "cache", print, tree)

    first = folder("here", "one")
    assert folder("here", "one") == first
    assert (folder("here", "two") != first) is by_tree
    assert (folder("there", "one") != first) is by_place


def test_of_failed_index_attempts_the_newest_is_reported() -> None:
    attempt = (
        "WARNING: Retrying (Retry(total={}, read=None)) after connection broken by 'NewConnectionError(…)': /torch/"
    )
    lines = [*(attempt.format(left) for left in (4, 3, 2, 1, 0)), "", "ERROR: No matching distribution found for torch"]
    with pytest.raises(package_cache.PackagesError) as failed:
        package_cache._run_command(
            [sys.executable, "-c", f"print({chr(10).join(lines)!r}); raise SystemExit(1)"], print
        )
    assert failed.value.params["output"].splitlines() == [lines[4], lines[6]]
