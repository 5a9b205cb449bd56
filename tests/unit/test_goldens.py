import json

import pytest

from tests import goldens


@pytest.mark.parametrize("name", goldens.GOLDENS)
def test_rendered_jobs_equal_their_goldens(name):
    expected = json.loads((goldens.HERE / f"{name}.json").read_text())
    assert json.loads(goldens.text(name)) == expected


def test_every_golden_is_used():
    assert {path.stem for path in goldens.HERE.glob("*.json")} == set(goldens.GOLDENS)
