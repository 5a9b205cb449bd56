"""The table, and what counts as good enough."""

import statistics
from collections.abc import Sequence

from tests.faults.catalogue.trial import Result

RIGHT, MEDIAN, WORST = 0.95, 10.0, 20.0
"""Of all faults so many are right; seconds from when it could be known, of those."""
SAID = 150


def format_row(result: Result) -> str:
    seconds = "" if result.seconds is None else f"{result.seconds:.1f}"
    verdict = "right" if result.right else "WRONG"
    why = "" if result.right else f" [{'; '.join([*result.lacks, *filter(None, [result.note])])}]"
    return f"{result.name:<30} {verdict:<6} {seconds:>6}  {result.said.short[:SAID]}{why}"


def print_report(faults: Sequence[Result], healthy: Sequence[Result]) -> int:
    """Prints both; the exit code."""
    good = True
    if faults:
        print(f"{'fault':<30} {'':<6} {'s':>6}  what was said")
        print(*map(format_row, faults), sep="\n")
        right = [one.seconds for one in faults if one.right and one.seconds is not None]
        share = len(right) / len(faults)
        median, worst = (statistics.median(right), max(right)) if right else (0.0, 0.0)
        good = share >= RIGHT and median < MEDIAN and worst < WORST
        print(f"\n{len(right)} of {len(faults)} right ({share:.0%}); median {median:.1f} s, worst {worst:.1f} s")
    if healthy:
        wrong = [one for one in healthy if not one.right]
        print(*map(format_row, wrong), sep="\n")
        print(f"\n{len(wrong)} false alarms in {len(healthy)} healthy runs")
        good = good and not wrong
    return 0 if good else 1
