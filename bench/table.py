"""A measured figure, and the table of figures."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

NOISE_RATIO = 1.2
"""How far apart two runs of the same code may lie."""


@dataclass(frozen=True, slots=True)
class FigureTarget:
    """A bound on the ratio to what is compared with, or on the value itself (in the figure's unit)."""

    bound: float
    kind: Literal["at most", "at least"] = "at most"
    applies_to: Literal["value", "ratio"] = "value"

    def met(self, value: float) -> bool:
        return value <= self.bound if self.kind == "at most" else value >= self.bound

    def __str__(self) -> str:
        sign = "≤" if self.kind == "at most" else "≥"
        return f"{sign} {format_number(self.bound)}{'×' if self.applies_to == 'ratio' else ''}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: `value` in `unit`; `other`, in the same unit, is what it is compared with, called `against`."""

    name: str
    value: float
    unit: str
    other: float | None = None
    against: str = ""
    target: FigureTarget | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.other if self.other else None

    @property
    def measure(self) -> float | None:
        """Return what runs are compared by: the ratio, or the share of the bound where there is nothing to compare
        with."""
        if self.ratio is not None or self.target is None or self.target.applies_to == "ratio":
            return self.ratio
        return self.value / self.target.bound if self.target.bound else None

    @property
    def better(self) -> Literal["less", "more"]:
        """Return which direction is better without a target: more of what is counted per second, less of all else."""
        if self.target is not None:
            return "less" if self.target.kind == "at most" else "more"
        return "more" if self.unit == "/s" else "less"

    def worse(self, before: float) -> bool:
        """Return whether the figure is worse than in an earlier run, by more than two runs of the same code differ."""
        now = self.measure
        if now is None:
            return False
        return now > before * NOISE_RATIO if self.better == "less" else now * NOISE_RATIO < before

    @property
    def met(self) -> bool | None:
        """Return whether the target is met; None without a target."""
        if self.target is None:
            return None
        measured = self.value if self.target.applies_to == "value" else self.ratio
        return measured is not None and self.target.met(measured)


def format_number(value: float) -> str:
    """Return a number with three significant digits: 0.0712, 3.19, 43.6, 1,536."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def print_table(
    sections: Iterable[tuple[str, list[Figure]]],
    console: Console,
    before: tuple[str, Mapping[str, float]] = ("", {}),
    *,
    details: bool = True,
) -> None:
    """Print the table. `before`: the name of an earlier run, and its measures by `section: figure`. Without details:
    figures with a target, and those that became worse."""
    name, measures = before
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", style="bold", no_wrap=True)
    table.add_column("figure")
    for title in ("Fermi", "compared with", "ratio", *([name] if name else []), "target"):
        table.add_column(title, justify="right")
    table.add_column("")
    for section, figures in sections:
        rows = [(figure, measures.get(f"{section}: {figure.name}")) for figure in figures]
        shown = [row for row in rows if details or row[0].target or (row[1] is not None and row[0].worse(row[1]))]
        for index, (figure, earlier) in enumerate(shown):
            cells = _make_cells(figure, [_format_earlier(figure, earlier)] if name else [])
            table.add_row(section if index == 0 else "", *cells, end_section=index == len(shown) - 1)
    console.print(table)


def _make_cells(figure: Figure, earlier: list[str | Text]) -> list[str | Text]:
    other = "" if figure.other is None else f"{format_number(figure.other)} {figure.unit} {figure.against}"
    verdict = {None: Text(""), True: Text("pass", "green"), False: Text("MISS", "red")}[figure.met]
    target = "" if figure.target is None else str(figure.target)
    return [figure.name, f"{format_number(figure.value)} {figure.unit}", other, _format_measure(figure, figure.measure),
            *earlier, target, verdict]  # fmt: skip


def _format_earlier(figure: Figure, before: float | None) -> str | Text:
    shown = _format_measure(figure, before)
    return Text(f"{shown} worse", "yellow") if before is not None and figure.worse(before) else shown


def _format_measure(figure: Figure, value: float | None) -> str:
    if value is None:
        return ""
    return f"{format_number(value)}×" if figure.ratio is not None else f"{100 * value:.0f} % of it"
