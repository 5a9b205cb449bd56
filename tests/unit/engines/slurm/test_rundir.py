"""The folder that the platform and a job share, although they may be two users with one group."""

from pathlib import Path

from fermi.engines.slurm.rundir import RunDir
from tests.clean_environment import umask


def test_the_job_s_group_reads_all_it_needs_whatever_the_platform_s_umask(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "runs" / "task-x-1")
    with umask(0o077):
        run.write({"order.json": {}, "files/ds.json": "{}"})
        run.stop(0.0)
    assert {path.name for path in run.path.rglob("*") if not path.stat().st_mode & 0o040} == set()
    assert {"order.json", "ds.json", "stop.json", "files"} == {path.name for path in run.path.rglob("*")}
