"""What its confinement keeps a rank from is said of the exception that came of it."""

from pathlib import Path

import pytest

from fermi.engines import isolation
from fermi.runner import sandbox
from tests.unit.runner.test_node import run

TRIED = [
    ('open("hidden/data.txt")', "hidden"),
    ('open("hidden/new.txt", "w")', "hidden"),
    ('open("hidden/none/none.txt")', "hidden"),
    ('open("read/data.txt", "w")', "readOnly"),
    ('open("read/new.txt", "w")', "readOnly"),
    ('open("read/none.txt")', None),
    ('open("own/none.txt")', None),
    ('open("none/none.txt")', None),
    ("raise PermissionError(\"[Errno 13] Permission denied: 'own'\")", None),
]
"""What a rank does, and what keeps it from the path; paths stand for absolute ones."""


@pytest.mark.parametrize("view", [False, True])
def test_a_denied_path_is_reported_with_its_exception(tmp_path: Path, view: bool) -> None:
    if not sandbox.read_landlock_abi():
        pytest.skip("this kernel has no Landlock")
    if view and not isolation.choose_isolation("landlock", isolation.SandboxPaths(tmp_path, tmp_path, "python")).view:
        pytest.skip("no mount namespaces can be made here")
    for name in ("hidden", "read", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.txt").write_text("1")
    modes = {tmp_path: "rwm", tmp_path / "hidden": "", tmp_path / "read": "r", isolation.TOOLKIT.parent: "r"}
    order = {"own": [], "paths": {str(path): mode for path, mode in modes.items()}, "landlock": True, "view": view}
    lines = [line.replace('open("', f'open("{tmp_path}/').replace("'own'", f"'{tmp_path}/own'") for line, _ in TRIED]
    script = f"""
import atexit
def stay():  # the first rank that is gone ends the others
    (here / f"own/raised-{{rank}}").touch()
    for other in range({len(TRIED)}):
        until(f"own/raised-{{other}}")
atexit.register(stay)
exec({lines!r}[rank])
"""
    ranks = run(tmp_path, script, len(TRIED), pulse=True, confine=order)
    assert [rank["error"] and rank["error"]["refused"] for rank in ranks] == [refused for _, refused in TRIED]
    assert all(rank["error"] for rank in ranks), [(tmp_path / f"{rank}.log").read_text() for rank in range(len(TRIED))]
