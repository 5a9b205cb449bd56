"""Expected scaling of a choice of environments, as a table."""

from collections.abc import Iterator

from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.texts import _
from fermi.client.types import ScalingExpectation, ScalingRange


def render_expected_scaling(expectation: ScalingExpectation) -> Iterator[RenderableType]:
    """Yield the table and its assumptions."""
    rows: list[list[output.Cell]] = [
        [row["nodes"], row["processes"], f"{row['theoretical']:.3g}x", _format_range(row["speedup"], "{:.3g}x"),
         _format_range(row["efficiency"], "{:.0%}")]
        for row in expectation["rows"]
    ]  # fmt: skip
    headers = [_("NODES"), _("PROCESSES"), _("THEORETICAL_SPEED_UP"), _("EXPECTED_SPEED_UP"), _("EFFICIENCY")]
    yield output.make_table(headers, rows, title=_("EXPECTED_SCALING"))
    yield output.make_line(_("EXPECTED_TOKENS", span=_format_range(expectation["tokensPerSecond"], "{:.4g}")))
    yield from (output.make_line(f"  {reason['message']}") for reason in expectation["reasons"])


def _format_range(limits: ScalingRange, form: str) -> str:
    low, high = form.format(limits["low"]), form.format(limits["high"])
    return low if low == high else f"{low} – {high}"
