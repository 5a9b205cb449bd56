"""What the local engine writes down."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fermi.launch import registry
from fermi.launch.backends.local import LocalBackend
from tests.goldens import job


def test_submitting_again_never_leaves_a_rank_with_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that read its script between truncating and writing ended at once, with exit code 0."""
    backend = LocalBackend({"data_dir": str(tmp_path), "warm": False})
    monkeypatch.setattr(backend.launcher, "launch", lambda *_: None)
    spec = job("env-001")
    plan = registry.framework("ddp").plan(spec)
    for text in ("first", "second"):
        backend.submit(backend.render(spec, replace(plan, files={"config": text})))
        if text == "first":
            os.link(tmp_path / "runs" / spec.name / "files" / "config", tmp_path / "being read")
    assert (tmp_path / "being read").read_text() == "first", "written over in place"
    files = list((tmp_path / "runs" / spec.name / "files").iterdir())
    assert [(file.name, file.read_text()) for file in files] == [("config", "second")]
