"""Cost of the operators' first page: 1,000 nodes with 8,000 GPUs, and 10,000 tasks of a week. One process answers, on
the embedded database; the telemetry of these nodes is not in it."""

import json
from collections.abc import Iterator

from bench.table import Figure, FigureTarget
from bench.temp_platform import make_temp_folder, run_in_django

FIGURE_NAMES = {
    "overview": "the overview",
    "attention": "what needs somebody, the first page",
    "last": "what needs somebody, page 40",
    "book": "an hour of utilisation, booked",
}


def measure() -> Iterator[Figure]:
    with make_temp_folder() as data:
        found = json.loads(run_in_django(data, "overview", "0"))
    for name, label in FIGURE_NAMES.items():
        yield Figure(label, found[name] * 1e3, "ms", target=None if name == "book" else FigureTarget(200))
