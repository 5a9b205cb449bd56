"""Which files of long tests a run takes."""

import itertools
from pathlib import Path

from scripts import shares
from tests.platform_process import ROOT

FILES = sorted([*ROOT.glob("tests/e2e/test_*.py"), *ROOT.glob("tests/faults/test_*.py")])
SHARES = [str(number) for number in range(1, shares.SHARE_COUNT + 1)]


def test_each_file_is_in_one_share_and_the_main_job_in_all() -> None:
    taken = {share: set(FILES) - shares.list_left_out(FILES, share) for share in SHARES}
    assert set.union(*taken.values()) == set(FILES)
    assert {path.name for path in set.intersection(*taken.values())} == set(shares.ALWAYS_RUN)
    for path in FILES:
        if path.name not in shares.ALWAYS_RUN:
            assert sum(path in files for files in taken.values()) == 1


def test_shares_are_of_similar_size() -> None:
    taken = [set(FILES) - shares.list_left_out(FILES, share) for share in SHARES]
    sizes = [sum(path.stat().st_size for path in files) for files in taken]
    assert max(sizes) < 1.25 * min(sizes)


def test_a_commit_has_a_fixed_share_and_commits_cover_all() -> None:
    assert shares.choose_share({}, "9add5725") == shares.choose_share({}, "9add5725")
    assert {shares.choose_share({}, f"{number:x}") for number in range(40)} == set(SHARES)
    assert shares.choose_share({"FERMI_TEST_ALL": "1"}, "9add5725") == ""
    assert shares.choose_share({"FERMI_TEST_SHARE": "2"}, "9add5725") == "2"


def test_without_a_share_all_files_run() -> None:
    assert shares.list_left_out([Path("missing")], "") == set()


def test_a_file_runs_on_one_database_and_with_the_next_share_on_the_other() -> None:
    files = sorted(ROOT.glob("tests/api/test_*.py"))
    for share, following in itertools.pairwise(SHARES):
        taken = [
            {file for file in files if not shares.is_for_other_database(file, share, kind)} for kind in (True, False)
        ]
        assert taken[0] | taken[1] == set(files)
        assert not taken[0] & taken[1]
        assert taken[0] == {file for file in files if not shares.is_for_other_database(file, following, False)}
        assert min(len(one) for one in taken) > len(files) / 3


def test_without_a_share_files_run_on_both_databases() -> None:
    assert not any(shares.is_for_other_database(Path("test_lists.py"), "", kind) for kind in (True, False))
