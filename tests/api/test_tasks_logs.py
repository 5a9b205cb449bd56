"""Lines of logs by expression, level and time, and where the first error is."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from apps.training.logs import first_error, levels, pages
from apps.training.models import Attempt, Task
from fermi.runner.record_frames import format_frame
from tests.api.conftest import Api
from tests.api.test_tasks_create import DOCUMENT

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")

BEGUN = datetime(2026, 11, 22, 9, tzinfo=UTC)
TRACEBACK = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
ValueError: bad
"""
LOG = f"""\
starting
2026-11-22 10:00:00,000 - INFO - loaded 3 shards
2026-11-22 10:00:05,000 - WARNING - slow disk
  because of shard 2
step 1
2026-11-22 10:00:10,000 - ERROR - shard 3 is lost
{TRACEBACK}2026-11-22 10:00:20,000 - INFO - end
"""


@pytest.fixture
def task(colleague: Api) -> Task:
    task = Task.objects.get(pk=colleague.post("/training-tasks", DOCUMENT).data["taskId"])
    Task.objects.filter(pk=task.pk).update(attempt=1)
    Attempt.objects.create(task=task, number=1, master_port=29500, created_at=BEGUN)
    return task


@pytest.fixture
def write(task: Task, settings: Any) -> Callable[..., None]:
    def written(text: str, rank: int = 0) -> None:
        folder = settings.DATA_DIR / "logs" / task.pk / "1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{rank}.log").write_text(text, encoding="utf-8")

    return written


@pytest.fixture
def list_texts(colleague: Api, task: Task) -> Callable[..., list[str]]:
    def texts(**query: Any) -> list[str]:
        """Of all pages."""
        found, cursor = [], ""
        while True:
            page = colleague.get(f"/training-tasks/{task.pk}/logs", cursor=cursor, **query).data
            found += [line["text"] for line in page["lines"]]
            if page["end"]:
                return found
            cursor = page["cursor"]

    return texts


def test_lines_have_level_and_time_where_known(colleague, task, write):
    write(LOG)
    lines = colleague.get(f"/training-tasks/{task.pk}/logs").data["lines"]
    assert lines[0] == {"offset": 0, "text": "starting"}
    assert [line.get("level") for line in lines] == [
        None, "info", "warning", "warning", None, "error", "error", "error", "error", "info",
    ]  # fmt: skip
    assert lines[3]["time"] == lines[2]["time"] == "2026-11-22T10:00:05Z"


def test_a_level_filter_keeps_graver_lines_and_whole_tracebacks(write, list_texts):
    write(LOG)
    assert list_texts(level="error") == ["2026-11-22 10:00:10,000 - ERROR - shard 3 is lost", *TRACEBACK.splitlines()]
    assert len(list_texts(level="warning")) == 6
    assert len(list_texts(level="debug")) == 8


def test_a_time_filter_includes_both_ends(write, list_texts):
    write(LOG)
    assert list_texts(since="2026-11-22T10:00:20Z") == ["2026-11-22 10:00:20,000 - INFO - end"]
    assert list_texts(until="2026-11-22T18:00:00+08:00") == ["2026-11-22 10:00:00,000 - INFO - loaded 3 shards"]
    between = list_texts(since="2026-11-22T10:00:01Z", until="2026-11-22T10:00:09Z")
    assert between == ["2026-11-22 10:00:05,000 - WARNING - slow disk", "  because of shard 2", "step 1"]


def test_a_regular_expression_filters_lines(write, list_texts):
    write(LOG)
    assert list_texts(search=r"^STEP \d$", regex="true") == ["step 1"]
    assert list_texts(search=r"(?-i)^STEP \d$", regex="true") == []
    assert list_texts(search=r"shard [23]", regex="true", level="error") == [
        "2026-11-22 10:00:10,000 - ERROR - shard 3 is lost"
    ]
    assert list_texts(search=r"^STEP \d$") == [], "without regex it is text"


def test_filters_apply_to_all_ranks_and_to_the_tail(write, list_texts, colleague, task):
    write("".join(f"INFO: {n}\nERROR: {n}\n" for n in range(50)))
    write("ERROR: of three\n", rank=3)
    assert "ERROR: of three" in (found := list_texts(rank="all", level="error"))
    assert len(found) == 51
    newest = colleague.get(f"/training-tasks/{task.pk}/logs", tail="true", limit=2, level="error").data
    assert [line["text"] for line in newest["lines"]] == ["ERROR: 48", "ERROR: 49"]


def test_a_page_knows_the_level_of_the_lines_before_it(write, list_texts, monkeypatch):
    """Wherever a page begins, its lines are of the same level and time as in one long page."""
    write(LOG * 3)
    expected = [list_texts(level="error"), list_texts(since="2026-11-22T10:00:10Z")]
    assert [list_texts(level="error", limit=1), list_texts(since="2026-11-22T10:00:10Z", limit=1)] == expected
    write("2026-11-22 10:00:00 ERROR x\n" + "y\n" * levels.MAX_REACH_BYTES)
    assert (
        len(list_texts(level="error", limit=5000)) == len(list_texts(level="error", limit=777)) < levels.MAX_REACH_BYTES
    )


def test_a_page_that_takes_too_long_ends_early_and_can_be_continued(write, list_texts, monkeypatch):
    write(LOG)
    monkeypatch.setattr(pages, "MAX_PAGE_SECONDS", -1.0)
    assert len(list_texts(search="shard", regex="true")) == 3
    assert len(list_texts(search="shard", rank="all")) == 3


@pytest.mark.parametrize(
    ("search", "why"),
    [("(a", "a missing ), at (a"), ("a)", "an unmatched ), at a)"), ("[a", "a missing ], at [a"),
     ("x[z-a]", "an invalid character range, at z-a"), ("(?<=x)y", "an unknown kind of group, at (?<="),
     (r"(a)\1", r"an unknown escape sequence, at \1"), ("(?P<1", "an invalid group name, at (?P<1"),
     ("x{2000}", "a repetition count above 1,000, or a minimum above the maximum, at {2000}"),
     ("a**", "several repetition operators in a row, at **"),
     ("*a", "nothing to repeat, at *"), ("a\\", "a trailing backslash, at a\\")],
)  # fmt: skip
def test_an_invalid_expression_is_refused_with_error_and_position(colleague, task, search, why):
    colleague.lang = "en"
    path = f"/training-tasks/{task.pk}/logs"
    answer = colleague.get(path, search=search, regex="true")
    assert (answer.status, answer.problems) == (400, {"search": "REGEX_INVALID"})
    assert answer.body["message"] == f"{search} is not a valid regular expression: {why}"
    assert colleague.get(path, search=search).status == 200, "as a text it is none"


def test_a_too_large_expression_is_refused(colleague, task, write):
    write("x" * 60_000 + "\n")
    path = f"/training-tasks/{task.pk}/logs"
    for search in ("(.?){900}(.?){900}y", r"(\pL{500}){2}"):
        answer = colleague.get(path, search=search, regex="true")
        assert (answer.status, answer.problems) == (400, {"search": "REGEX_TOO_LARGE"})
    assert colleague.get(path, search=r"(x+x+)+y", regex="true").data["lines"] == []


@pytest.mark.parametrize(
    ("field", "value"), [("level", "loud"), ("since", "yesterday"), ("until", "12"), ("regex", "maybe")]
)
def test_each_invalid_field_is_named(colleague, task, field, value):
    answer = colleague.get(f"/training-tasks/{task.pk}/logs", **{field: value})
    assert (answer.status, list(answer.problems)) == (400, [field])


# Lines that are printed over ------------------------------------------------------------------------------------------


BARS = "".join(f"\r {n}%|#" for n in range(101))


def test_a_progress_bar_is_shown_in_its_current_state_and_once_at_the_end(colleague, task, write):
    def read(cursor: str = "") -> tuple[list[Any], str]:
        page = colleague.get(f"/training-tasks/{task.pk}/logs", cursor=cursor).data
        assert page["end"] is True
        return page["lines"], page["cursor"]

    write("begin\n\r 1%|#\r 2%|#")
    lines, cursor = read()
    assert lines == [{"offset": 0, "text": "begin"}, {"offset": 13, "text": " 2%|#", "open": True}]
    assert read(cursor) == ([], cursor), "what has not changed is not told again"
    write("begin\n\r 1%|#\r 2%|#\r 3%|#\r 4%")
    lines, cursor = read(cursor)
    assert lines == [{"offset": 25, "text": " 4%", "open": True}]
    write("begin\n\r 1%|#\r 2%|#\r 3%|#\r 4%|#")
    lines, cursor = read(cursor)
    assert lines == [{"offset": 25, "text": " 4%|#", "open": True}], "of one that was half written all of it"
    write("begin\n\r 1%|#\r 2%|#\r 3%|#\r 4%|#\r 5%|#\nend\n")
    last = [{"offset": 31, "text": " 5%|#"}, {"offset": 37, "text": "end"}]
    assert read(cursor)[0] == last
    assert read()[0] == [{"offset": 0, "text": "begin"}, *last], "the same line wherever reading began"


def test_half_a_line_is_held_back_until_its_end(list_texts, write):
    write("done\nhal")
    assert list_texts() == ["done"]


def test_an_unfinished_progress_bar_of_an_ended_attempt_is_a_line(list_texts, write, colleague, task):
    write(BARS)
    cursor = colleague.get(f"/training-tasks/{task.pk}/logs").data["cursor"]
    Attempt.objects.update(ended_at=BEGUN)
    page = colleague.get(f"/training-tasks/{task.pk}/logs", cursor=cursor).data
    assert page["lines"] == [{"offset": BARS.index("100%") - 1, "text": " 100%|#"}]
    assert colleague.get(f"/training-tasks/{task.pk}/logs", cursor=page["cursor"]).data["lines"] == []


@pytest.mark.parametrize("tail", ["true", "false"])
def test_a_progress_bar_of_megabytes_shows_its_newest_state(list_texts, write, monkeypatch, tail):
    monkeypatch.setattr(pages, "MAX_SCAN_BYTES", 1 << 18)
    long = "".join(f"\r{n:>8}|" + "#" * 91 for n in range(10_000))
    write(long)
    newest = [long.rpartition("\r")[2]]
    assert list_texts(tail=tail, limit=5) == newest
    write(f"before\n{long}\nafter\n")
    assert list_texts(tail=tail, limit=5) == ([] if tail == "true" else ["before"]) + [*newest, "after"]


def test_search_looks_at_rendered_lines(list_texts, write):
    write(f"{BARS}\n50%\n")
    assert list_texts(search="50%") == ["50%"]
    assert list_texts(search=r"^ 100%", regex="true") == [" 100%|#"]
    write(f"{BARS}\n\r 50%")
    assert list_texts(search="50%") == [" 50%"]
    assert list_texts(search="100%") == [" 100%|#"]


def test_the_newest_lines_of_all_ranks_include_progress_bars(colleague, task, write):
    for rank in (0, 1):
        write(f"begin\n\r 1%\r {rank + 2}%", rank)
    lines = colleague.get(f"/training-tasks/{task.pk}/logs", rank="all", tail="true", limit=5000).data["lines"]
    assert [(line["rank"], line["text"], line.get("open")) for line in lines] == [
        (0, "begin", None), (0, " 2%", True), (1, "begin", None), (1, " 3%", True),
    ]  # fmt: skip


def test_a_line_has_the_same_offset_wherever_reading_starts(colleague, task, write):
    text = "a\r\n" + BARS + "\n\r 1%\r\x1b[K\nb\n"
    write(text)

    def read(begin: int) -> list[Any]:
        page = colleague.get(f"/training-tasks/{task.pk}/logs", cursor=f"1@0:{begin}").data
        return [(line["offset"], line["text"]) for line in page["lines"]]

    whole = read(0)
    assert [shown for _, shown in whole] == ["a", " 100%|#", "", "b"]
    for begin in (3, text.index(" 50%") - 1, text.index(" 99%")):
        assert read(begin) == whole[1:]


def test_colours_are_no_text_for_searches_and_levels(list_texts, write, first):
    red = "\x1b[31m2026-11-22 10:00:05 ERR\x1b[1mOR\x1b[0m lost"
    write(f"\x1b[32mINFO\x1b[0m: begin\n{red}\n\x1b[1mCRITICAL\x1b[0m: end\n31m is text\n")
    assert list_texts(rank="0", search="error lost") == [red]
    assert list_texts(rank="0", search="^\\S+ \\S+ error lost$", regex="true") == [red]
    assert list_texts(rank="0", search="31m") == ["31m is text"]
    assert list_texts(rank="0", level="error") == [red, "\x1b[1mCRITICAL\x1b[0m: end"]
    assert first(rank="0")["found"]["text"] == red


def test_a_coloured_word_is_the_first_error(write, first):
    write("begin\n\x1b[91mCRITICAL\x1b[0m: lost\n")
    assert first(rank="0")["found"]["text"] == "\x1b[91mCRITICAL\x1b[0m: lost"


NESTED = "begin\n\repochs 0|" + "".join(
    "".join(f"\n\rsteps {step:02}|\x1b[A" for step in range(50)) + f"\n\r         \x1b[A\repochs {epoch}|"
    for epoch in range(1, 4)
)
"""Bars of tqdm, one in the other."""


def test_bars_below_each_other_are_open_together_and_become_a_line_each(colleague, task, write):
    def read(**query: Any) -> Any:
        return colleague.get(f"/training-tasks/{task.pk}/logs", **query).data

    cursor, lines, states = "", [], []
    cuts = [at.start() for at in re.finditer("\n|\x1b", NESTED)][6::5]
    for cut in [*cuts, len(NESTED)]:
        write(NESTED[:cut])
        page = read(cursor=cursor)
        cursor = page["cursor"]
        lines += [line["text"] for line in page["lines"] if not line.get("open")]
        states += [line["text"] for line in page["lines"] if line.get("open")]
        assert read(cursor=cursor)["lines"] == []
    assert lines == ["begin"]
    assert any(re.fullmatch(r"epochs 1\|\nsteps 2\d\|", state) for state in states)
    assert states[-1] == "epochs 3|"
    write(NESTED + "\nafter\nend\n")
    ended = read(cursor=cursor)
    assert [line["text"] for line in ended["lines"]] == ["epochs 3|", "after", "end"]
    whole = read()["lines"]
    assert [line["text"] for line in whole] == ["begin", "epochs 3|", "after", "end"]
    assert whole[1:] == ended["lines"]
    assert read(tail="true", limit=3)["lines"] == whole[1:]
    assert [line["text"] for line in read(search="epochs")["lines"]] == ["epochs 3|"]
    assert [page for page in (read(limit=1), read(cursor="1@0:6", limit=1)) if len(page["lines"]) != 1] == []
    assert b"".join(pages.LogPageReader(task, 1).iterate_log(0)) == b"begin\nepochs 3|\nafter\nend\n"


def test_open_bars_of_several_ranks_are_not_mixed(colleague, task, write):
    for rank in (0, 1):
        write(f"begin\n\repochs {rank}|\n\rsteps {rank}|\x1b[A", rank)
    lines = colleague.get(f"/training-tasks/{task.pk}/logs", rank="all", tail="true", limit=5000).data["lines"]
    assert [(line["rank"], line["text"]) for line in lines if line.get("open")] == [
        (0, "epochs 0|\nsteps 0|"), (1, "epochs 1|\nsteps 1|"),
    ]  # fmt: skip


def test_bars_of_an_attempt_that_has_ended_are_lines(colleague, task, write):
    write("\repochs 1|\n\rsteps 7|\x1b[A")
    Attempt.objects.update(ended_at=BEGUN)
    page = colleague.get(f"/training-tasks/{task.pk}/logs").data
    assert [(line["text"], line.get("open")) for line in page["lines"]] == [("epochs 1|", None), ("steps 7|", None)]
    assert colleague.get(f"/training-tasks/{task.pk}/logs", cursor=page["cursor"]).data["lines"] == []


@pytest.mark.parametrize("cursor", ["1@0:1-2-3", "1@0:1-2-3-4-5", "1@0:1-2--1", "1@0:-"])
def test_a_malformed_place_among_bars_is_refused(colleague, task, write, cursor):
    assert colleague.get(f"/training-tasks/{task.pk}/logs", cursor=cursor).problems == {"cursor": "CURSOR_INVALID"}


def test_a_place_among_bars_that_nobody_gave_is_read_from(colleague, task, write):
    write(NESTED)
    far = 10**17
    assert colleague.get(f"/training-tasks/{task.pk}/logs", cursor=f"1@0:6-0-{far}-{far}").data["lines"]


def test_a_download_has_rendered_lines(task, write, monkeypatch):
    monkeypatch.setattr(pages, "PIECE_BYTES", 1 << 10)
    text = f"a\r\n{BARS}\n{'x' * 5000}\n\r 1%\r 2%"
    write(text)
    assert b"".join(pages.LogPageReader(task, 1).iterate_log(0)).decode() == f"a\n 100%|#\n{'x' * 5000}\n 2%"


WITHIN, OWN_LINE = (format_frame(b'{"values":{"error":1.0}}', own_line=own).decode() for own in (False, True))


def test_lines_that_hold_frames_only_are_no_lines(list_texts, write, colleague, task):
    write(f"{OWN_LINE * 2}a{WITHIN}b\n{OWN_LINE}\n{WITHIN}half{OWN_LINE} of it\n{BARS}{WITHIN * 2}\nend\n{OWN_LINE}")
    for tail in ("true", "false"):
        assert list_texts(tail=tail) == ["ab", "", "half of it", " 100%|#", "end"]
    assert list_texts(search="error") == []
    page = colleague.get(f"/training-tasks/{task.pk}/logs").data
    assert page["lines"][0] == {"offset": len(OWN_LINE * 2), "text": "ab"}
    for line in page["lines"]:
        again = colleague.get(f"/training-tasks/{task.pk}/logs", cursor=f"1@0:{line['offset']}").data["lines"]
        assert again[0] == line


def test_frames_after_a_progress_bar_do_not_show_it_again(colleague, task, write):
    def read(cursor: str = "") -> tuple[list[Any], str]:
        page = colleague.get(f"/training-tasks/{task.pk}/logs", cursor=cursor).data
        assert page["end"] is True
        return page["lines"], page["cursor"]

    write(f"a\n\r 1%|#{WITHIN}")
    lines, cursor = read()
    assert lines[1:] == [{"offset": 3, "text": " 1%|#", "open": True}]
    for frames in (WITHIN * 2, WITHIN * 2 + WITHIN[:7], WITHIN * 3):
        write(f"a\n\r 1%|#{frames}")
        assert read(cursor) == ([], cursor)
    bar = f"a\n\r 1%|#{WITHIN * 3}\r 2%|#"
    write(bar + WITHIN[:-1])
    lines, cursor = read(cursor)
    assert lines == [{"offset": bar.rindex("\r") + 1, "text": " 2%|#", "open": True}]
    write(f"{bar}{WITHIN}|\n")
    assert [line["text"] for line in read(cursor)[0]] == [" 2%|#|"]


@pytest.mark.parametrize("tail", ["true", "false"])
def test_megabytes_of_frames_hide_no_line(list_texts, write, monkeypatch, tail):
    monkeypatch.setattr(pages, "MAX_SCAN_BYTES", 1 << 21)
    write("one\n" + OWN_LINE * 20_000 + "two\n\r 1%" + WITHIN * 20_000 + "\r 2%")
    assert list_texts(tail=tail, limit=5)[-2:] == [" 1%", " 2%"], "a state that frames separate is a line of its own"
    write("one\n" + OWN_LINE * 20_000 + "two\n")
    assert list_texts(tail=tail, limit=5) == ["one", "two"]


@pytest.mark.parametrize("size", [100, 1000, 1 << 18])
def test_a_download_has_no_frames(task, write, monkeypatch, size):
    monkeypatch.setattr(pages, "PIECE_BYTES", size)
    write(f"{OWN_LINE * 2}a{WITHIN}b\nhalf{OWN_LINE} of it\n{BARS}{WITHIN * 2}\nend{WITHIN}")
    assert b"".join(pages.LogPageReader(task, 1).iterate_log(0)).decode() == "ab\nhalf of it\n 100%|#\nend"


def test_the_first_error_is_never_in_a_frame(first, write):
    write(f"{OWN_LINE}a{WITHIN}\n\r 1%{WITHIN}\r    {WITHIN}\rERROR: {WITHIN}lost\n")
    assert first(rank="0")["found"]["text"] == "ERROR: lost"
    write(f"{OWN_LINE}a{WITHIN}\n")
    assert first(rank="0")["found"] is None


def test_an_overwritten_error_is_ignored_and_one_after_a_progress_bar_is_found(first, write):
    write("\rERROR: try 1\r 1%|#\n\r 1%|#\r 2%|#\r    \rERROR: lost\n")
    found = first(rank="0")["found"]
    assert (found["text"], found["offset"]) == ("ERROR: lost", 38)


# The first error ------------------------------------------------------------------------------------------------------


@pytest.fixture
def first(colleague: Api, task: Task) -> Callable[..., Any]:
    return lambda **query: colleague.get(f"/training-tasks/{task.pk}/logs/first-error", **query).data


def test_the_first_error_of_a_rank_is_found(first, write):
    write(LOG)
    assert first(rank="0") == {
        "attempt": 1,
        "found": {
            "rank": 0,
            "offset": LOG.index("2026-11-22 10:00:10"),
            "text": "2026-11-22 10:00:10,000 - ERROR - shard 3 is lost",
            "level": "error",
            "time": "2026-11-22T10:00:10Z",
        },
        "complete": True,
        "windowBytes": first_error.WINDOW_BYTES,
        "ranksUnread": 0,
    }
    assert first(rank="1")["found"] is None


def test_the_earliest_error_of_all_ranks_is_found(first, write):
    write("2026-11-22 10:00:03 ERROR late\n", rank=0)
    write("2026-11-22 10:00:02 ERROR early\n", rank=9)
    assert first()["found"]["rank"] == 9


def test_without_times_the_first_error_is_that_of_the_rank_that_failed_first(first, write):
    write("2026-11-22 10:00:03 ERROR peer is gone\n", rank=0)
    write(TRACEBACK, rank=5)
    write(TRACEBACK, rank=7)
    assert first()["found"]["rank"] == 0
    Attempt.objects.update(outcome="RANK_FAILED", outcome_params={"rank": 7})
    assert (first()["found"]["rank"], first()["found"]["text"]) == (7, "Traceback (most recent call last):")


def test_only_both_ends_of_a_long_log_are_read_and_the_gap_is_reported(first, write, monkeypatch):
    monkeypatch.setattr(first_error, "WINDOW_BYTES", 0)
    monkeypatch.setattr(first_error, "MAX_LINE_BYTES", 1 << 10)
    monkeypatch.setattr(first_error, "PIECE_BYTES", 100)
    quiet = "an err that is none\n" * 200
    write(f"{quiet}ERROR: in the middle\n{quiet}ERROR: at the end\n")
    found = first(rank="0")
    assert (found["found"]["text"], found["complete"], found["windowBytes"]) == ("ERROR: at the end", False, 1 << 10)
    write(f"ERROR: at the beginning\n{quiet}{quiet}")
    assert (first(rank="0")["found"]["offset"], first(rank="0")["complete"]) == (0, True)
    write(quiet + quiet)
    assert (first(rank="0")["found"], first(rank="0")["complete"]) == (None, False)


def test_an_error_in_an_incomplete_line_is_found(first, write):
    write("ERROR: lo")
    assert first()["found"]["text"] == "ERROR: lo"


def test_under_a_time_limit_the_rank_that_failed_first_is_read(first, write, monkeypatch):
    Attempt.objects.update(outcome="RANK_FAILED", outcome_params={"rank": 7})
    write(TRACEBACK, rank=7)
    moments = iter([0.0, 0.0])
    monkeypatch.setattr(first_error, "time", SimpleNamespace(monotonic=lambda: next(moments, 100.0)))
    found = first()
    assert (found["found"]["rank"], found["complete"], found["ranksUnread"]) == (7, False, 13)


@pytest.mark.parametrize(("query", "field"), [({"rank": "14"}, "rank"), ({"attempt": "0"}, "attempt")])
def test_invalid_parameters_for_the_first_error_are_named(colleague, task, query, field):
    answer = colleague.get(f"/training-tasks/{task.pk}/logs/first-error", **query)
    assert (answer.status, list(answer.problems)) == (400, [field])
