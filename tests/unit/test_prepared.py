"""Prepared packages of a node: what was wanted longest ago gives way, and nothing that is in use."""

import json
import os
import time
from pathlib import Path

from fermi.runner import prepared


def made(cache: Path, name: str, hours_ago: float) -> Path:
    folder = cache / name
    folder.mkdir()
    for lock in ("lock", "used"):
        (cache / f"{name}.{lock}").touch()
    (folder / prepared.READY).write_text(json.dumps({"bytes": 100}))
    moment = time.time() - hours_ago * 3600
    os.utime(folder / prepared.READY, (moment, moment))
    return folder


def test_what_was_wanted_longest_ago_goes_and_never_what_is_held_or_fresh(tmp_path: Path) -> None:
    old, held, older, fresh = (
        made(tmp_path, name, hours) for name, hours in (("a", 5), ("b", 50), ("c", 9), ("d", 0.5))
    )
    descriptor = prepared.hold(str(held))
    assert descriptor >= 0
    prepared.make_room(tmp_path, 300)
    assert [folder.exists() for folder in (old, held, older, fresh)] == [True, True, False, True]
    prepared.make_room(tmp_path, 0)
    assert [folder.exists() for folder in (old, held, older, fresh)] == [False, True, False, True]
    os.close(descriptor)
    prepared.make_room(tmp_path, 100)
    assert not held.exists()
    assert prepared.hold(str(tmp_path / "absent")) == -1
