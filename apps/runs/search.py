"""Finds the tasks that a query matches, for any number of tasks, without reading all of them.

For each condition an index answers how many tasks match, up to MAX_CANDIDATES. Where one of the conditions that must
hold has fewer, its tasks are tested for the rest: the answer is exact, and sorted by anything. Else tasks are read in
the order of the table, the newest first or by the index of a parameter or a curve, and tested one after the other until
a page is full or MAX_READ have been read; then the page says so, and the next one goes on from there.

    found = search_tasks(Search(query, projects, sort), size=50, cursor="")
    found.ids, found.next_cursor, found.total, found.is_complete, found.read
"""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from django.db import connection, transaction

from apps.runs.search_conditions import (
    Sql,
    adapt_time,
    build_archive_test,
    build_test,
    is_postgresql,
    join_parts,
    match_keys,
    read_created,
    select_created,
)
from apps.runs.search_order import NEWEST_FIRST, Key, Sort, get_value_table, make_cursor, read_cursor
from apps.runs.search_sources import ARCHIVED_TASKS, Source, build_created_bounds, build_sources, resolve_equality
from apps.runs.table_values import load_sort_values
from apps.training.public import TaskKind
from fermi.runs.query import And, Condition, Expression, Negation, Or, Query, Word

MAX_CANDIDATES, MAX_READ = 2_000, 20_000
"""Tasks that the index of a rare condition may name; and that are read and tested for one page."""
MAX_SORTED, MAX_NARROW = 2_000, 4_000
"""Tasks that are sorted by what no index has: the newest that match; all of a project or owner with so many tasks."""
MAX_COUNTED, MAX_BATCH = 5_000, 5_000
"""Tasks that are counted for a total, and of a page for a program."""
MAX_PROJECT_ARMS = 50
"""Projects of a reader up to which the tasks of each are counted."""
FIRST_CHUNK, LEAST_CHUNK, PAGE_SECONDS = 1_000, 250, 0.065
"""Tasks that are read at once, twice as many each time, or as many as the time left is enough for; and the time after
which a page for people reads no further."""


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched for. `projects`: those of the reader; None: all. `archived`: None: whether or not."""

    query: Query
    projects: Sequence[str] | None
    sort: Sort = NEWEST_FIRST
    archived: bool | None = False


@dataclass(frozen=True, slots=True)
class RunIds:
    """A page of tasks. `total`: None where it is not known; `read`: how many tasks were read for it; not complete:
    there may be more before the next page begins, or, in an order that no index has, elsewhere."""

    ids: list[str]
    next_cursor: str | None = None
    total: int | None = None
    is_exact: bool = True
    is_complete: bool = True
    read: int = 0


class _Read(NamedTuple):
    """Tasks that match, `behind`: the last task that was read, where there are more; how many were read."""

    keys: list[Key]
    behind: Key | None
    read: int


def search_tasks(search: Search, size: int, cursor: str = "", *, seconds: float | None = None) -> RunIds:
    """Return a page of the ids of matching tasks. `seconds`: after which it ends where it is, in an order in which the
    next page can go on. Raises ApiError 400 CURSOR_INVALID for a cursor of another order."""
    after = read_cursor(cursor, search.sort) if cursor else None
    if search.projects is not None and not search.projects:
        return RunIds([], total=0)
    with use_indexes():
        return _Plan(search, seconds).run(size, after)


@contextmanager
def use_indexes() -> Iterator[None]:
    """Have PostgreSQL read by indexes in their order and join by look-ups: its estimates of how many rows match two
    conditions on one table are far off, and a plan that reads a whole table takes seconds."""
    if not is_postgresql():
        yield
        return
    with transaction.atomic():
        _execute(
            "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off; "
            "SET LOCAL enable_mergejoin = off; SET LOCAL jit = off; SET LOCAL max_parallel_workers_per_gather = 0"
        )
        yield


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _fetch(statement: Sql) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement.text, statement.values)
        return cursor.fetchall()


class _Plan:
    """One search: its tests, and how its tasks are found."""

    def __init__(self, search: Search, seconds: float | None) -> None:
        self._search = search
        self._deadline = time.monotonic() + (math.inf if seconds is None else seconds)
        self._root = search.query.root
        self._needed = _list_needed(self._root)
        tests = [] if self._root is None else [_build_expression(item) for item in self._list_parts()]
        tests.sort(key=lambda test: "SELECT" in test.text)
        if search.projects is not None:
            tests.insert(0, match_keys("t.project_id", search.projects))
        if search.archived is not None:
            tests.append(build_archive_test(archived=search.archived))
        self._tests = join_parts("AND", tests) if tests else Sql("TRUE")

    def _list_parts(self) -> Sequence[Expression]:
        assert self._root is not None
        return self._root.items if isinstance(self._root, And) else (self._root,)

    def run(self, size: int, after: Key | None) -> RunIds:
        """Return the page."""
        if candidates := self._find_candidates(late=False):
            return self._page_candidates(candidates, size, after)
        found = self._walk(size, after)
        if len(found.ids) < size and not found.is_complete and (candidates := self._find_candidates(late=True)):
            return self._page_candidates(candidates, size, after)
        return found

    # Candidates

    def _find_candidates(self, *, late: bool) -> list[Sql] | None:
        """Return statements that select few tasks, all that match among them; None where no index names so few."""
        trees = [] if self._root is None else [_build_source_tree(self._root)]
        if not late and (visible := self._build_visible_source()):
            trees.append(visible)
        if not late and self._search.archived:
            trees.append(ARCHIVED_TASKS)
        leaves = [leaf for tree in trees for leaf in _list_leaves(tree) if leaf.late is late]
        arms = [arm for leaf in leaves for arm in leaf.arms]
        counts = iter(_count_rows(arms, late=late))
        sizes = {id(leaf): sum(next(counts) for _ in leaf.arms) for leaf in leaves}
        found = [best for tree in trees if (best := _choose_arms(tree, sizes))]
        size, chosen = min(found, key=lambda one: one[0], default=(0, None))
        return chosen if size <= MAX_CANDIDATES else None

    def _build_visible_source(self) -> Source | None:
        projects = self._search.projects
        if projects is None or len(projects) > MAX_PROJECT_ARMS:
            return None
        return Source(tuple(_select_project(project) for project in projects))

    def _page_candidates(self, arms: Sequence[Sql], size: int, after: Key | None) -> RunIds:
        union = _join_arms([_limit(arm, MAX_CANDIDATES) for arm in dict.fromkeys(arms)], "UNION")
        joined = f"({union.text}) c {_join_task('c.task', self._tests)}"
        rows = _fetch(
            Sql(
                f"SELECT t.id, {select_created()} FROM {joined} WHERE t.kind = %s AND {self._tests.text}",
                (*union.values, TaskKind.TRAINING.value, *self._tests.values),
            )
        )
        keys = self._sort_rows([(key, read_created(moment)) for key, moment in rows])
        return self._cut_page(keys, size, after, total=len(keys), read=len(rows))

    def _sort_rows(self, rows: Sequence[tuple[str, datetime]]) -> list[Key]:
        """Return the tasks, given by id and creation, in the order of the table."""
        sort = self._search.sort
        values = {} if sort.is_by_creation else load_sort_values([row[0] for row in rows], sort.field)
        keys = [Key(row[0], *values.get(row[0], (None, None)), row[1]) for row in rows]
        return sort.order(keys)

    def _cut_page(self, keys: Sequence[Key], size: int, after: Key | None, **facts: Any) -> RunIds:
        """Return the page that begins after a place in all of the tasks."""
        rest = [key for key in keys if after is None or self._search.sort.compare(key, after) > 0]
        more = len(rest) > size
        page = rest[:size]
        return RunIds([key.id for key in page], make_cursor(page[-1], self._search.sort) if more else None, **facts)

    # Reading in the order of the table

    def _walk(self, size: int, after: Key | None) -> RunIds:
        sort = self._search.sort
        if sort.is_by_creation:
            return self._make_walked(self._read_on(partial(self._read_created, self._tests), size + 1, after), size)
        if self._is_narrow():
            return self._walk_and_sort(size, after, MAX_NARROW)
        if not sort.is_by_value:
            return self._walk_and_sort(size, after, MAX_SORTED)
        found = _Read([], None, 0)
        if after is None or after.value is not None:
            found = self._read_on(self._read_values, size + 1, after)
        if len(found.keys) <= size and found.behind is None:  # then those without a value
            start = after if after is not None and after.value is None else None
            read = partial(self._read_created, join_parts("AND", [self._tests, self._build_value_test()]))
            rest = self._read_on(read, size + 1 - len(found.keys), start, already=found.read)
            found = _Read(found.keys + rest.keys, rest.behind, found.read + rest.read)
        return self._make_walked(found, size)

    def _read_on(
        self, read: "_Reader", count: int, after: Key | None, *, already: int = 0, patient: bool = False
    ) -> _Read:
        """Return the next tasks that match, at most `count`, of at most MAX_READ that are read piece by piece, within
        the time unless it is `patient`."""
        keys: list[Key] = []
        total, most = 0, FIRST_CHUNK
        while (left := MAX_READ - already - total) > 0:
            began = time.monotonic()
            most = min(most, left)
            found = read(count - len(keys), most, after)
            keys, total, after = keys + found.keys, total + found.read, found.behind
            if after is None or len(keys) == count:
                break
            ended = time.monotonic()
            enough = math.inf if patient else most * (self._deadline - ended) / max(ended - began, 1e-6)
            if enough < LEAST_CHUNK:
                break
            most = int(min(2 * most, enough))
        return _Read(keys, after, total)

    def _make_walked(self, found: _Read, size: int) -> RunIds:
        """Return the page of the first tasks."""
        keys, sort = found.keys, self._search.sort
        page = [key.id for key in keys[:size]]
        if len(keys) > size:
            return RunIds(page, make_cursor(keys[size - 1], sort), *self._count_matching(), True, found.read)
        if found.behind is not None:
            return RunIds(page, make_cursor(found.behind, sort), None, False, False, found.read)
        return RunIds(page, None, *self._count_matching(), True, found.read)

    def _count_matching(self) -> tuple[int | None, bool]:
        """Return how many tasks match, and whether that is exact: for what one index answers, up to a limit."""
        if self._root is not None or (self._search.projects and len(self._search.projects) > MAX_PROJECT_ARMS):
            return None, False
        arms = [_select_project(project) for project in self._search.projects or ()] or [_select_all()]
        union = _limit(_join_arms([_limit(arm, MAX_COUNTED + 1) for arm in arms], "UNION ALL"), MAX_COUNTED + 1)
        [(count,)] = _fetch(Sql(f"SELECT COUNT(*) FROM ({union.text}) c", union.values))
        archived = 0
        if self._search.archived is False:
            [(archived,)] = _fetch(
                Sql(
                    f"SELECT COUNT(*) FROM (SELECT 1 FROM runs_run WHERE archived_at IS NOT NULL LIMIT {MAX_COUNTED}) c"
                )
            )
        return (count, not archived) if count <= MAX_COUNTED else (MAX_COUNTED, False)

    def _is_narrow(self) -> bool:
        """Return whether few tasks are of the project, the owner, … that all matching tasks have."""
        equal, most = self._choose_equality(), min(MAX_NARROW, MAX_READ)
        if equal is None:
            return False
        rows = f"SELECT 1 FROM training_task t WHERE t.kind = %s AND {equal.text} LIMIT {most + 1}"
        [(count,)] = _fetch(Sql(f"SELECT COUNT(*) FROM ({rows}) c", (TaskKind.TRAINING.value, *equal.values)))
        return bool(count <= most)

    def _walk_and_sort(self, size: int, after: Key | None, most: int) -> RunIds:
        """Return a page of the newest tasks that match, at most `most`, in any order."""
        found = self._read_on(partial(self._read_created, self._tests), most + 1, None, patient=True)
        complete = len(found.keys) <= most and found.behind is None
        keys = self._sort_rows([(key.id, key.created) for key in found.keys[:most]])
        facts = {"total": len(keys), "is_exact": complete, "is_complete": complete, "read": found.read}
        return self._cut_page(keys, size, after, **facts)

    def _read_created(self, tests: Sql, count: int, most: int, after: Key | None) -> _Read:
        """Return the next tasks that match in the order of creation, at most `count` of at most `most`."""
        newest_first = self._search.sort.newest_first
        where = [Sql("t.kind = %s", (TaskKind.TRAINING.value,)), *build_created_bounds(self._needed)]
        equal = self._choose_equality()
        where += [equal] if equal else []
        if after is not None:
            where.append(_build_created_bound(after, newest_first))
        order = "t.created_at DESC, t.id" if newest_first else "t.created_at, t.id DESC"
        columns = ", ".join(f"t.{name}" for name in _list_columns(tests.text) | {"id", "created_at"})
        condition = join_parts("AND", where)
        base = f"FROM training_task t WHERE {condition.text} ORDER BY {order}"
        outer = f"ORDER BY {order} " if is_postgresql() else ""  # SQLite would read all before it sorts
        rows = _fetch(
            Sql(
                f"SELECT t.id, {select_created()} FROM (SELECT {columns} {base} LIMIT {most}) t "
                f"WHERE {tests.text} {outer}LIMIT {count}",
                (*condition.values, *tests.values),
            )
        )
        keys = [Key(row[0], None, None, read_created(row[1])) for row in rows]
        if len(keys) == count:
            return _Read(keys, keys[-1], most)
        last = _fetch(Sql(f"SELECT t.id, {select_created()} {base} LIMIT 1 OFFSET {most - 1}", condition.values))
        behind = Key(last[0][0], None, None, read_created(last[0][1])) if last else None
        return _Read(keys, behind, most if last else len(keys))

    def _choose_equality(self) -> Sql | None:
        """Return the condition with which an index has fewer tasks in the order of creation: an owner, a project, a
        framework or a state."""
        found: dict[str, Any] = {}
        if self._search.projects is not None and len(self._search.projects) == 1:
            found["project_id"] = self._search.projects[0]
        for condition in self._needed:
            if isinstance(condition, Condition) and (equal := resolve_equality(condition)):
                found.setdefault(*equal)
        chosen = next((name for name in ("owner_id", "project_id", "framework", "state") if name in found), None)
        return Sql(f"t.{chosen} = %s", (found[chosen],)) if chosen else None

    def _read_values(self, count: int, most: int, after: Key | None) -> _Read:
        """Return the same in the order of a parameter's, a curve's or a cost's values."""
        table = get_value_table(self._search.sort.field)
        descends = self._search.sort.descending
        value, tie = f"v.{table.column}", f"v.{table.tie}"
        where = [Sql(f"{value} IS NOT NULL")]
        if table.name is not None:
            where.append(Sql("v.name = %s", (table.name,)))
        if after is not None:
            sign, tie_sign = ("<", ">") if descends else (">", "<")
            further = f"{value} {sign} %s OR ({value} = %s AND {tie} {tie_sign} %s)"
            where += [Sql(f"{value} {sign}= %s", (after.value,)), Sql(further, (after.value, after.value, after.tie))]
        condition = join_parts("AND", where)
        first, second = ("DESC", "ASC") if descends else ("ASC", "DESC")
        order = f"{value} {first}, {tie} {second}"
        base = f"FROM {table.table} v WHERE {condition.text} ORDER BY {order}"
        inner = f"SELECT v.task_id, {value} AS value, {tie} AS tie {base} LIMIT {most}"
        outer = f"ORDER BY v.value {first}, v.tie {second} " if is_postgresql() else ""
        rows = _fetch(
            Sql(
                f"SELECT t.id, v.value, v.tie, {select_created()} "
                f"FROM ({inner}) v {_join_task('v.task_id', self._tests)} WHERE t.kind = %s AND {self._tests.text} "
                f"{outer}LIMIT {count}",
                (*condition.values, TaskKind.TRAINING.value, *self._tests.values),
            )
        )
        keys = [Key(row[0], row[1], row[2], read_created(row[3])) for row in rows]
        if len(keys) == count:
            return _Read(keys, keys[-1], most)
        last = _fetch(Sql(f"SELECT v.task_id, {value}, {tie} {base} LIMIT 1 OFFSET {most - 1}", condition.values))
        behind = Key(last[0][0], last[0][1], last[0][2], datetime(1, 1, 1, tzinfo=UTC)) if last else None
        return _Read(keys, behind, most if last else len(keys))

    def _build_value_test(self) -> Sql:
        """Return the test that a task has no value by which the table is sorted."""
        table = get_value_table(self._search.sort.field)
        name = Sql(" AND v.name = %s", (table.name,)) if table.name is not None else Sql("")
        row = (
            f"SELECT 1 FROM {table.table} v WHERE v.task_id = t.id AND v.{table.column} IS NOT NULL{name.text} LIMIT 1"
        )
        return Sql(f"({row}) IS NULL", name.values)


_Reader = Callable[[int, int, Key | None], _Read]


def _join_task(key: str, tests: Sql) -> str:
    """Return the join to the task `t` with this key, which is looked up for each row."""
    if not is_postgresql():
        return f"CROSS JOIN training_task t ON t.id = {key}"
    columns = ", ".join(f"t.{name}" for name in sorted(_list_columns(tests.text) | {"id", "kind", "created_at"}))
    return f"CROSS JOIN LATERAL (SELECT {columns} FROM training_task t WHERE t.id = {key} LIMIT 1) t"


def _build_created_bound(after: Key, newest_first: bool) -> Sql:
    """Return the condition for the tasks after a place. The first part is weaker, but an index can answer it."""
    moment = adapt_time(after.created)
    sign, tie_sign = ("<", ">") if newest_first else (">", "<")
    return Sql(
        f"t.created_at {sign}= %s AND (t.created_at {sign} %s OR t.id {tie_sign} %s)", (moment, moment, after.id)
    )


def _list_columns(text: str) -> set[str]:
    """Return the columns of tasks that SQL reads."""
    return set(re.findall(r"\bt\.([a-z_]+)", text))


def _list_needed(root: Expression | None) -> list[Condition | Word]:
    """Return the conditions that all matching tasks fulfil."""
    items = root.items if isinstance(root, And) else () if root is None else (root,)
    return [item for item in items if isinstance(item, Condition | Word)]


def _build_expression(item: Expression) -> Sql:
    match item:
        case Condition() | Word():
            return build_test(item)
        case Negation():
            inner = _build_expression(item.item)
            return Sql(f"NOT ({inner.text})", inner.values)
    return join_parts("AND" if isinstance(item, And) else "OR", map(_build_expression, item.items))


class _All(NamedTuple):
    """Sources of which the smallest is chosen."""

    sources: tuple[Any, ...]


class _Any(NamedTuple):
    """Sources that are all needed. None in it: no index answers."""

    sources: tuple[Any, ...]


_Tree = Source | _All | _Any | None


def _build_source_tree(item: Expression) -> _Tree:
    match item:
        case Condition() | Word():
            return _All(tuple(build_sources([item]).values()))
        case And():
            plain = [one for one in item.items if isinstance(one, Condition | Word)]
            others = [_build_source_tree(one) for one in item.items if isinstance(one, Or | And)]
            return _All((*build_sources(plain).values(), *others))
        case Or():
            return _Any(tuple(map(_build_source_tree, item.items)))
    return None


def _list_leaves(tree: Any) -> list[Source]:
    if isinstance(tree, Source):
        return [tree]
    return [] if tree is None else [leaf for one in tree.sources for leaf in _list_leaves(one)]


def _choose_arms(tree: Any, sizes: Mapping[int, int]) -> tuple[int, list[Sql]] | None:
    """Return the fewest rows that sources name, and the statements that select them."""
    match tree:
        case Source():
            size = sizes.get(id(tree))
            return None if size is None else (size, list(tree.arms))
        case _All():
            found = [one for source in tree.sources if (one := _choose_arms(source, sizes))]
            return min(found, key=lambda one: one[0], default=None)
        case _Any():
            each = [_choose_arms(source, sizes) for source in tree.sources]
            if any(one is None for one in each):
                return None
            return sum(one[0] for one in each if one), [arm for one in each if one for arm in one[1]]
    return None


def _count_rows(arms: Sequence[Sql], *, late: bool) -> list[int]:
    """Return how many rows each statement selects, at most one more than MAX_CANDIDATES, in one round trip."""
    if not arms:
        return []
    if late:
        _execute("SET LOCAL enable_bitmapscan = on")
    limited = [_limit(arm, MAX_CANDIDATES + 1) for arm in arms]
    counted = ", ".join(f"(SELECT COUNT(*) FROM ({arm.text}) a)" for arm in limited)
    [row] = _fetch(Sql(f"SELECT {counted}", tuple(value for arm in limited for value in arm.values)))
    return list(row)


def _limit(arm: Sql, most: int) -> Sql:
    return Sql(f"SELECT * FROM ({arm.text} LIMIT {most}) l", arm.values)


def _join_arms(arms: Sequence[Sql], word: str) -> Sql:
    return Sql(f" {word} ".join(arm.text for arm in arms), tuple(value for arm in arms for value in arm.values))


def _select_project(project: str) -> Sql:
    return Sql(
        "SELECT id AS task FROM training_task WHERE project_id = %s AND kind = %s ORDER BY created_at DESC, id",
        (project, TaskKind.TRAINING.value),
    )


def _select_all() -> Sql:
    return Sql(
        "SELECT id AS task FROM training_task WHERE kind = %s ORDER BY created_at DESC, id", (TaskKind.TRAINING.value,)
    )
