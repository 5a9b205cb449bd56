"""Which files of tests in a browser `make test` runs again."""

from pathlib import Path

import pytest

from scripts.test import BROWSER_TESTS, list_retry_files

ALL = sorted(file.name for file in BROWSER_TESTS.glob("*.test.js"))


@pytest.mark.parametrize(
    ("failed", "files"),
    [
        (["it is made and runs"], ["environments-life.test.js"]),
        (["it is made and runs", "a model that was found has the focus where it is shown"],
         ["environments-life.test.js", "shell.test.js"]),
        (["models and zones"], ALL),  # it is in pages.js
    ],
)  # fmt: skip
def test_files_with_failures_run_again(failed: list[str], files: list[str]) -> None:
    command = list_retry_files(failed)
    assert [Path(word).name for word in command if word.endswith(".js")] == files
    assert "--test-concurrency=1" in command
