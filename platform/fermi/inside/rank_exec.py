"""Runs a command or a terminal next to a rank inside of an environment: `fermi.envd.rank_exec`, with the data of the
rank's runner.

    python -m fermi.inside.rank_exec HOME ATTEMPT NODE RANK
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from fermi.envd import rank_exec
from fermi.inside import node_runs
from fermi.runner import files, processes, status
from fermi.runner.late_values import Late


def build_rank_order(home: str, name: str, node: int, rank: int) -> dict[str, Any] | None:
    """Return the order for `fermi.envd.rank_exec`, or None if the rank does not run."""
    folder = node_runs.get_run_folder(home, name)
    path = node_runs.get_spec_path(folder, node)
    spec: dict[str, Any] | None = files.read_json(str(path))
    if spec is None:
        return None
    running = [one for one in status.read_status(path).ranks if one["rank"] == rank and one["state"] == "running"]
    if not running or not processes.is_alive(running[0]):
        return None
    own = next(one["env"] for one in spec["ranks"] if one["rank"] == rank)
    env = {key: _fill_files_folder(value, str(folder / "files")) for key, value in {**spec["env"], **own}.items()}
    chosen = {"chosen": spec["code"]["chosen"]} if spec.get("code") else {}
    head = {"head": spec["meeting"]["head"], "first": spec["node_rank"] == 0}
    return {"name": name, "env": env, "cwd": spec["cwd"], "without": [], **head, **chosen}


def _fill_files_folder(value: Any, folder: str) -> Any:
    """Return a late value with the folder of the plan's files, which only this environment knows."""
    if not isinstance(value, list):
        return value
    late = {"late": Late.FILES_DIR.value}
    pieces = [folder if piece == late else piece for piece in value]
    return "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else pieces


def main(home: str, name: str, node: str, rank: str) -> int:
    """Serve the stream, and return the exit code."""
    found = build_rank_order(home, name, int(node), int(rank))
    if found is None:
        sys.stdout.write(json.dumps({"ok": False, "code": "RANK_NOT_RUNNING", "params": {}}) + "\n")
        return 1
    os.chdir(str(Path(found["cwd"]) if os.path.isdir(found["cwd"]) else home))
    return rank_exec.main(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
