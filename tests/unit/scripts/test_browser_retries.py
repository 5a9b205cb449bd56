"""Which files of tests in a browser `make test` runs again."""

from pathlib import Path

import pytest

from scripts.test import BROWSER_TESTS, list_retry_files

ALL = sorted(file.name for file in BROWSER_TESTS.glob("*.test.js"))


@pytest.mark.parametrize(
    ("failed", "files"),
    [
        (["it is created and runs"], ["managed-environments.test.js"]),
        (["it is created and runs", "a model found in the palette has the focus on its page"],
         ["managed-environments.test.js", "shell.test.js"]),
        (["models and zones are listed"], ALL),  # it is in pages.js
    ],
)  # fmt: skip
def test_files_with_failures_run_again(failed: list[str], files: list[str]) -> None:
    command = list_retry_files(failed)
    assert [Path(word).name for word in command if word.endswith(".js")] == files
    assert "--test-concurrency=1" in command
