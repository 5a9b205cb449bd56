"""The page says what is measured and how long it is kept, as the code has it."""

from pathlib import Path

import pytest

from apps.telemetry.resolutions import RESOLUTIONS, count_max_blocks
from fermi.telemetry.metrics import METRICS

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("page", ["telemetry.md", "zh/telemetry.md"])
def test_every_metric_and_bound_is_documented(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    assert [name for name in METRICS if f"`{name}`" not in text] == []
    for grain in RESOLUTIONS:
        assert f"| {count_max_blocks(grain)} |" in text
    assert str(sum(map(count_max_blocks, RESOLUTIONS))) in text
