"""The results as JSON and as a Markdown table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.gpu.check import AREAS, Check
from tests.gpu.machine import Machine

NAME = "gpu-check"


def write(
    folder: Path, machine: Machine, checks: dict[str, Check], results: dict[str, Any], about: dict[str, Any]
) -> None:
    """Writes `gpu-check.json` and `gpu-check.md`; results of an earlier run that the folder has are kept where this
    one has none. `about`: date, commit and such."""
    whole = {"about": about, "machine": asdict(machine), "results": results}
    (folder / f"{NAME}.json").write_text(json.dumps(whole, ensure_ascii=False, indent=1) + "\n")
    (folder / f"{NAME}.md").write_text(markdown(machine, checks, results, about))


def read(folder: Path) -> dict[str, Any]:
    """Returns the results of earlier runs by check, empty where there are none."""
    path = folder / f"{NAME}.json"
    found: dict[str, Any] = json.loads(path.read_text())["results"] if path.exists() else {}
    return found


def markdown(machine: Machine, checks: dict[str, Check], results: dict[str, Any], about: dict[str, Any]) -> str:
    """Returns the table: a section for each area, a row for each check."""
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    card = f"{machine.cards} × {machine.card}, {machine.memory / 2**30:.0f} GiB" if machine.cuda else "no GPU"
    lines = [
        f"{about['date']} · {card} · driver {machine.driver or '–'} · CUDA {machine.cuda_version or '–'} · "
        f"NCCL {machine.nccl or '–'} · Python {machine.python} · Linux {machine.kernel} · {machine.cores} cores · "
        f"{packages}",
        "",
    ]
    for area, title in AREAS.items():
        rows = [(name, results[name]) for name, one in checks.items() if one.area == area and name in results]
        if rows:
            lines += [f"### {title}", "", "| check | result | seconds | figures, and why |", "|---|---|---|---|"]
            lines += [_row(name, checks[name].title, result) for name, result in rows]
            lines.append("")
    return "\n".join(lines)


def _row(name: str, title: str, result: dict[str, Any]) -> str:
    figures = [
        f"{one['name']}: **{_short(one['value'])}** {one['unit']}".strip() + _bounds(one) for one in result["figures"]
    ]
    said = "<br>".join(part.replace("|", "\\|").replace("\n", " ")[:400] for part in
                       [*figures, *result["reasons"], *result["notes"]])  # fmt: skip
    return f"| `{name}`<br>{title} | {result['state']} | {result['seconds']} | {said} |"


def _short(value: float | str) -> str:
    """Returns a number with four significant digits, all of those before the point."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _bounds(figure: dict[str, Any]) -> str:
    found = [f"≤ {figure['most']:g}"] if "most" in figure else []
    found += [f"≥ {figure['least']:g}"] if "least" in figure else []
    return f" ({', '.join(found)})" if found else ""
