"""Which files of long tests a run takes."""

from pathlib import Path

from scripts import shares
from tests.platform_process import ROOT

FILES = sorted(path for name in ("e2e", "faults", "openapi") for path in ROOT.glob(f"tests/{name}/test_*.py"))
SHARES = [str(number) for number in range(1, shares.SHARE_COUNT + 1)]


def test_each_file_is_in_one_share_or_in_all() -> None:
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


def test_a_seed_takes_each_file_on_one_database_or_on_both() -> None:
    on_sqlite = []
    for seed in map(str, range(20)):
        taken = [
            {file for file in FILES if not shares.is_for_other_database(file, seed, kind)} for kind in (False, True)
        ]
        assert taken[0] | taken[1] == set(FILES)
        assert {file.name for file in taken[0] & taken[1]} == set(shares.ALWAYS_RUN)
        assert min(len(one) for one in taken) > len(FILES) / 4
        on_sqlite.append(taken[0])
    assert set.union(*on_sqlite) == set(FILES)
    assert {file.name for file in set.intersection(*on_sqlite)} == set(shares.ALWAYS_RUN)
