"""Runs one check: `python -m tests.gpu.run_check NAME WORK PORT`. Its last word is a file, `WORK/checks/NAME.json`."""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.gpu import machine
from tests.gpu.check import SkippedError, checks
from tests.gpu.context import Context


def run(name: str, work: Path, port: int) -> dict[str, Any]:
    """Returns the result: `state` is passed, failed or skipped."""
    here = machine.read((work / "machine.json").read_text())
    context, began = Context(name, work, here, port), time.monotonic()
    state, reasons = "passed", list[str]()
    try:
        checks()[name].run(context)
    except SkippedError as skipped:
        state, reasons = "skipped", [str(skipped)]
    except Exception as error:  # the table says it, and the other checks go on
        traceback.print_exc()
        context.failures.append(f"{type(error).__name__}: {error}".strip()[:1500])
    if context.failures:
        state, reasons = "failed", context.failures
    return {
        "state": state, "reasons": reasons, "notes": context.notes, "figures": context.figures,
        "seconds": round(time.monotonic() - began, 2),
    }  # fmt: skip


if __name__ == "__main__":
    _name, _work, _port = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    _result = run(_name, _work, _port)
    (_work / "checks" / f"{_name}.json").write_text(json.dumps(_result, ensure_ascii=False))
