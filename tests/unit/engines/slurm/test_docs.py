"""The note on Slurm and the code say the same."""

import re
from pathlib import Path

from fermi.engines.slurm import causes
from fermi.engines.slurm.check import CONNECTION
from fermi.engines.slurm.rejections import ERROR_CODES
from fermi.planning import plugins


def test_every_key_of_a_connection_is_documented(root: Path) -> None:
    text = (root / "docs" / "slurm.md").read_text()
    table = text.partition("## The connection")[2].partition("## What is submitted")[0]
    told = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert told == CONNECTION["properties"].keys()


def test_every_state_and_cause_is_documented_with_its_restart(root: Path) -> None:
    text = (root / "docs" / "slurm.md").read_text()
    assert all(f"`{state}`" in text for state in causes.END_STATES | causes.RUNNING_STATES | causes.PENDING_STATES)
    rows = re.findall(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \|.*\| (yes|no|–) \|$", text, re.MULTILINE)
    told = {code: restart == "yes" for codes, restart in rows for code in re.findall(r"`(\w+)`", codes)}
    known = plugins.get_causes("slurm")
    assert told == {code: known[code].retry for code in told}
    ours = {
        *causes.SLURM_END_CODES.values(),
        *ERROR_CODES.values(),
        "JOB_LOST",
        "JOB_FAILED",
        "QUEUE_WAITING",
        "JOB_HELD",
    }
    assert ours <= told.keys()
