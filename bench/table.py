"""A measured figure, and the table of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the ratio to what is compared with, or on the value itself (in the figure's unit)."""

    bound: float
    kind: Literal["at most", "at least"] = "at most"
    of: Literal["value", "ratio"] = "value"

    def met(self, value: float) -> bool:
        return value <= self.bound if self.kind == "at most" else value >= self.bound

    def __str__(self) -> str:
        sign = "≤" if self.kind == "at most" else "≥"
        return f"{sign} {number(self.bound)}{'×' if self.of == 'ratio' else ''}"


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` in `unit`; `other`, in the same unit, is what it is compared with, called `against`."""

    name: str
    value: float
    unit: str
    other: float | None = None
    against: str = ""
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.other if self.other else None

    @property
    def met(self) -> bool | None:
        """None without a target."""
        if self.target is None:
            return None
        measured = self.value if self.target.of == "value" else self.ratio
        return measured is not None and self.target.met(measured)


def number(value: float) -> str:
    """Three digits that count: 0.0712, 3.19, 43.6, 1,536."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(sections: Iterable[tuple[str, list[Figure]]], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", style="bold", no_wrap=True)
    table.add_column("figure")
    for title in ("Fermi", "compared with", "ratio", "target"):
        table.add_column(title, justify="right")
    table.add_column("")
    for section, figures in sections:
        for index, figure in enumerate(figures):
            table.add_row(section if index == 0 else "", *_cells(figure), end_section=index == len(figures) - 1)
    console.print(table)


def _cells(figure: Figure) -> list[str | Text]:
    other = "" if figure.other is None else f"{number(figure.other)} {figure.unit} {figure.against}"
    ratio = "" if figure.ratio is None else f"{number(figure.ratio)}×"
    verdict = {None: Text(""), True: Text("pass", "green"), False: Text("MISS", "red")}[figure.met]
    target = "" if figure.target is None else str(figure.target)
    return [figure.name, f"{number(figure.value)} {figure.unit}", other, ratio, target, verdict]
