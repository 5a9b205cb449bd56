"""Curves of one and the same training, computed in two ways."""

import pytest

Curve = dict[int, dict[str, float]]
"""What is reproducible of each step, by name."""

TOLERANCE = 1e-4
"""Relative. Another order of sums, another optimizer's kernels and another CPU's instructions change float32's last
digits; in a few steps that grows to 1e-6. Only runs of the same code in the same shape are compared bit for bit."""


def assert_alike(found: Curve, wanted: Curve) -> None:
    """The same values of the same steps, up to rounding."""
    assert found.keys() == wanted.keys() != set(), f"steps {list(found)}, wanted {list(wanted)}"
    for step, values in wanted.items():
        assert found[step] == pytest.approx(values, rel=TOLERANCE), f"step {step}: {found[step]}, wanted {values}"
