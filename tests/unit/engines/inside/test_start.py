"""Node runners that do not begin inside of an environment."""

from pathlib import Path

import pytest

from fermi.engines.inside.session import InsideError
from tests.inside_engines import Inside

SPEC = {"name": "task-x-1", "node_rank": 0, "ranks": []}


@pytest.mark.parametrize(
    ("does", "code", "permanent", "why"),
    [
        ("kill -9 $$", "INSIDE_RUNNER_KILLED", False, None),
        ("echo no module of that name >&2; exit 1", "INSIDE_RUNNER_FAILED", True, "no module of that name"),
        ("exit 3", "INSIDE_RUNNER_FAILED", True, "exit code 3"),
    ],
    ids=["killed", "complains", "says-nothing"],
)
def test_a_runner_that_exits_before_it_starts_gives_reason_and_retry(
    tmp_path: Path, does: str, code: str, permanent: bool, why: str | None
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)
    order = {"name": SPEC["name"], "python": str(python), "meeting": {"nodes": 1, "port": 0}, "spec": SPEC}
    environment = Inside(tmp_path)
    try:
        with environment.enter() as session, pytest.raises(InsideError) as refused:
            session.request("begin", order=order, head="127.0.0.1", secrets={})
    finally:
        environment.end_container()
    assert (refused.value.code, refused.value.permanent, refused.value.params.get("why")) == (code, permanent, why)
