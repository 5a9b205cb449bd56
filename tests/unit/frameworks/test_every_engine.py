"""One plan runs unchanged on every engine: each framework's, those that cannot be installed here too, is rendered."""

import pytest

from fermi.planning import plugins
from tests import goldens


@pytest.mark.parametrize("engine", plugins.BACKENDS)
@pytest.mark.parametrize("framework", plugins.FRAMEWORKS)
def test_every_frameworks_plan_is_rendered_for_every_engine(framework: str, engine: str) -> None:
    rendered = goldens.on_engine(goldens.job("env-001", "env-003", framework=framework), engine)
    assert rendered.artifacts
    assert "<Late." not in str(rendered.to_json()), "every late value is bound"
