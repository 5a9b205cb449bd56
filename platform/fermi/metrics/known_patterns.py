"""Lines that a project declares as points of curves, in the file of its diagnosis rules (`fermi.diagnosis.rules`):

    [[metric]]
    line = "iter {step}: loss {loss}, time {ms}ms"

Of these the first line is a point already. A pattern takes time linear in the line (decision 49).
"""

import hashlib
from dataclasses import dataclass

from fermi.diagnosis.rules import METRIC_COUNTERS, METRIC_TOTALS, parse_metric_lines
from fermi.diagnosis.rules.line_patterns import LinePattern, Placeholder
from fermi.metrics import text_lines
from fermi.metrics.text_lines import BATCH, EPOCH, ITERATION, STEP

_KINDS = {"step": STEP, "iter": ITERATION, "batch": BATCH, "epoch": EPOCH}


@dataclass(frozen=True, slots=True)
class DeclaredPattern:
    """A declared line, as `text_patterns.Learner` matches it."""

    key: str
    template: str
    first: bytes
    pattern: LinePattern

    def match(self, text: str) -> tuple[list[tuple[int, int, int]], dict[str, float | None]] | None:
        """Return the counters (kind, position, total) and the values; None if the line is of another shape."""
        taken = self.pattern.match(text)
        if taken is None:
            return None
        totals = {name: text_lines.parse_integer(taken.get(name, "")) or 0 for name in METRIC_TOTALS}
        counters = []
        for name in METRIC_COUNTERS & taken.keys():
            place = text_lines.parse_position(taken[name])
            if place is None:
                return None
            total = totals["epochs" if name == "epoch" else "total"]
            counters.append((_KINDS[name], place[0], place[1] or total))
        values: dict[str, float | None] = {}
        for name in taken.keys() - METRIC_COUNTERS - METRIC_TOTALS:
            found = text_lines.parse_cell(taken[name], name)
            if found is not None:
                values[name] = found[0]
        return (sorted(counters, reverse=True), dict(sorted(values.items()))) if values else None


def parse_declared_patterns(text: str) -> list[DeclaredPattern]:
    """Return the declared patterns of a project's file."""
    return [_declare(pattern) for pattern in parse_metric_lines(text)]


def _declare(pattern: LinePattern) -> DeclaredPattern:
    template = "".join(f"{{{piece.name}}}" if isinstance(piece, Placeholder) else piece for piece in pattern.pieces)
    key = hashlib.blake2b(template.encode(), digest_size=5).hexdigest()
    return DeclaredPattern(key, template, pattern.first.encode(), pattern)
