import json

import pytest

from tests import goldens


@pytest.mark.parametrize("name", goldens.GOLDENS)
def test_a_rendered_job_is_the_golden_one_to_the_letter(name):
    expected = json.loads((goldens.HERE / f"{name}.json").read_text())
    assert json.loads(goldens.text(name)) == expected


def test_there_is_no_golden_that_nothing_compares_with():
    assert {path.stem for path in goldens.HERE.glob("*.json")} == set(goldens.GOLDENS)
