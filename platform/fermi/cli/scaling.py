"""Expected scaling of a choice of environments, as a table."""

from collections.abc import Iterator

from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.texts import _
from fermi.client.types import ScalingExpectation, ScalingRange


def expected(found: ScalingExpectation) -> Iterator[RenderableType]:
    """Yield the table and its assumptions."""
    rows: list[list[output.Cell]] = [
        [row["nodes"], row["processes"], f"{row['theoretical']:.3g}x", _span(row["speedup"], "{:.3g}x"),
         _span(row["efficiency"], "{:.0%}")]
        for row in found["rows"]
    ]  # fmt: skip
    headers = [_("NODES"), _("PROCESSES"), _("THEORETICAL_SPEED_UP"), _("EXPECTED_SPEED_UP"), _("EFFICIENCY")]
    yield output.table(headers, rows, title=_("EXPECTED_SCALING"))
    yield output.line(_("EXPECTED_TOKENS", span=_span(found["tokensPerSecond"], "{:.4g}")))
    yield from (output.line(f"  {reason['message']}") for reason in found["reasons"])


def _span(limits: ScalingRange, form: str) -> str:
    low, high = form.format(limits["low"]), form.format(limits["high"])
    return low if low == high else f"{low} – {high}"
