"""Finds the tasks that a query matches, for any number of tasks, without reading all of them.

For each condition an index answers how many tasks match, up to MAX_CANDIDATES. Where one of the conditions that must
hold has fewer, its tasks are tested for the rest: the answer is exact, and sorted by anything. Else tasks are read in
the order of the table, the newest first or by the index of a parameter or a curve, and tested one after the other until
a page is full or MAX_READ have been read; then the page says so, and the next one goes on from there.

    found = search_tasks(Search(query, projects, sort), size=50, cursor="")
    found.ids, found.next_cursor, found.total, found.is_complete, found.read
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cmp_to_key
from typing import Any, NamedTuple

from django.db import connection, transaction

from apps.common.sql import read_moment
from apps.runs.search_conditions import (
    Sql,
    adapt_time,
    build_archive_test,
    build_test,
    is_postgresql,
    join_parts,
    match_keys,
)
from apps.runs.search_order import NEWEST_FIRST, Key, Sort, get_value_table, make_cursor, read_cursor
from apps.runs.search_sources import Source, build_created_bounds, build_sources, resolve_equality
from apps.runs.table_values import load_sort_values
from apps.training.public import TaskKind
from fermi.runs.query import And, Condition, Expression, Negation, Or, Query, Word

MAX_CANDIDATES, MAX_READ, MAX_SORTED = 2_000, 20_000, 5_000
"""Tasks that the index of a rare condition may name; that are read and tested for one page; and that are sorted by what
no index has."""
MAX_VISIBLE = 20_000
"""Tasks of a reader's projects up to which all of them are read."""
MAX_PROJECT_ARMS = 50


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched for. `projects`: those of the reader; None: all. `archived`: None: whether or not."""

    query: Query
    projects: Sequence[str] | None
    sort: Sort = NEWEST_FIRST
    archived: bool | None = False


@dataclass(frozen=True, slots=True)
class Found:
    """A page of tasks. `total`: None where it is not known; `read`: how many tasks were read for it; not complete:
    there may be more before the next page begins, or, in an order that no index has, elsewhere."""

    ids: list[str]
    next_cursor: str | None = None
    total: int | None = None
    is_exact: bool = True
    is_complete: bool = True
    read: int = 0


def search_tasks(search: Search, size: int, cursor: str = "") -> Found:
    """Return a page of the ids of matching tasks. Raises ApiError 400 CURSOR_INVALID for a cursor of another order."""
    after = read_cursor(cursor, search.sort) if cursor else None
    if search.projects is not None and not search.projects:
        return Found([], total=0)
    with _use_indexes():
        return _Plan(search).run(size, after)


@contextmanager
def _use_indexes() -> Iterator[None]:
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

    def __init__(self, search: Search) -> None:
        self._search = search
        self._root = search.query.root
        self._needed = _list_needed(self._root)
        tests = [] if self._root is None else [_build_expression(item) for item in self._list_parts()]
        tests.sort(key=lambda test: "SELECT" in test.text)
        if search.projects is not None:
            tests.insert(0, match_keys("t.project_id", search.projects))
        if search.archived is not None:
            tests.append(build_archive_test(archived=search.archived))
        self._tests = join_parts("AND", tests) if tests else Sql("TRUE")
        self._counts: dict[int, int] = {}

    def _list_parts(self) -> Sequence[Expression]:
        assert self._root is not None
        return self._root.items if isinstance(self._root, And) else (self._root,)

    def run(self, size: int, after: Key | None) -> Found:
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

    def _page_candidates(self, arms: Sequence[Sql], size: int, after: Key | None) -> Found:
        union = _join_arms([_limit(arm, MAX_CANDIDATES) for arm in dict.fromkeys(arms)], "UNION")
        join = "JOIN" if is_postgresql() else "CROSS JOIN"  # SQLite: the candidates first
        rows = _fetch(
            Sql(
                f"SELECT t.id, t.created_at FROM ({union.text}) c {join} training_task t ON t.id = c.id "
                f"WHERE t.kind = %s AND {self._tests.text}",
                (*union.values, TaskKind.TRAINING.value, *self._tests.values),
            )
        )
        keys = self._sort_rows(rows)
        return self._cut_page(keys, size, after, total=len(keys), read=len(rows))

    def _sort_rows(self, rows: Sequence[tuple[Any, ...]]) -> list[Key]:
        """Return the tasks, given by id and creation, in the order of the table."""
        sort = self._search.sort
        values = {} if sort.is_by_creation else load_sort_values([row[0] for row in rows], sort.field)
        keys = [Key(row[0], *values.get(row[0], (None, None)), read_moment(row[1])) for row in rows]
        return sorted(keys, key=cmp_to_key(self._search.sort.compare))

    def _cut_page(self, keys: Sequence[Key], size: int, after: Key | None, **facts: Any) -> Found:
        """Return the page that begins after a place in all of the tasks."""
        rest = [key for key in keys if after is None or self._search.sort.compare(key, after) > 0]
        more = len(rest) > size
        page = rest[:size]
        return Found([key.id for key in page], make_cursor(page[-1], self._search.sort) if more else None, **facts)

    # Reading in the order of the table

    def _walk(self, size: int, after: Key | None) -> Found:
        sort = self._search.sort
        if sort.is_by_creation:
            rows, behind, read = self._read_created(size + 1, MAX_READ, after, sort.newest_first)
            return self._make_walked(rows, size, behind, read)
        if not sort.is_by_value:
            return self._walk_and_sort(size, after)
        rows, behind, read = [], None, 0
        if after is None or after.value is not None:
            rows, behind, read = self._read_values(size + 1, MAX_READ, after)
        if len(rows) <= size and behind is None:  # then those without a value
            start = after if after is not None and after.value is None else None
            lacks = self._build_value_test()
            more, behind, count = self._read_created(size + 1 - len(rows), MAX_READ - read, start, True, lacks)
            rows, read = rows + more, read + count
        return self._make_walked(rows, size, behind, read)

    def _make_walked(self, rows: Sequence[Key], size: int, behind: Key | None, read: int) -> Found:
        """Return the page of rows; `behind`: the last that was read, if there are more."""
        page = [row.id for row in rows[:size]]
        if len(rows) > size:
            return Found(page, make_cursor(rows[size - 1], self._search.sort), *self._count_matching(), True, read)
        if behind is not None:
            return Found(page, make_cursor(behind, self._search.sort), None, False, False, read)
        return Found(page, None, *self._count_matching(), True, read)

    def _count_matching(self) -> tuple[int | None, bool]:
        """Return how many tasks match, and whether that is exact: for what one index answers, up to a limit."""
        if self._root is not None or (self._search.projects and len(self._search.projects) > MAX_PROJECT_ARMS):
            return None, False
        arms = [_select_project(project) for project in self._search.projects or ()] or [_select_all()]
        union = _limit(_join_arms([_limit(arm, MAX_SORTED + 1) for arm in arms], "UNION ALL"), MAX_SORTED + 1)
        [(count,)] = _fetch(Sql(f"SELECT COUNT(*) FROM ({union.text}) c", union.values))
        archived = 0
        if self._search.archived is False:
            [(archived,)] = _fetch(
                Sql(f"SELECT COUNT(*) FROM (SELECT 1 FROM runs_run WHERE archived_at IS NOT NULL LIMIT {MAX_SORTED}) c")
            )
        return (count, not archived) if count <= MAX_SORTED else (MAX_SORTED, False)

    def _walk_and_sort(self, size: int, after: Key | None) -> Found:
        """Return a page of the newest tasks that match, in an order that no index has."""
        rows, behind, read = self._read_created(MAX_SORTED + 1, MAX_READ, None, True)
        complete = len(rows) <= MAX_SORTED and behind is None
        keys = self._sort_rows([(row.id, row.created) for row in rows[:MAX_SORTED]])
        total = len(keys)
        return self._cut_page(keys, size, after, total=total, is_exact=complete, is_complete=complete, read=read)

    def _read_created(
        self, count: int, most: int, after: Key | None, newest_first: bool, *more_tests: Sql
    ) -> tuple[list[Key], Key | None, int]:
        """Return the next tasks that match in the order of creation, at most `count`; the last that was read, if there
        are more; and how many were read, at most `most`."""
        if most <= 0:
            return [], after, 0
        where = [Sql("t.kind = %s", (TaskKind.TRAINING.value,)), *build_created_bounds(self._needed)]
        equal = self._choose_equality()
        where += [equal] if equal else []
        if after is not None:
            where.append(_build_created_bound(after, newest_first))
        tests = join_parts("AND", [self._tests, *more_tests])
        order = "t.created_at DESC, t.id" if newest_first else "t.created_at, t.id DESC"
        columns = ", ".join(f"t.{name}" for name in _list_columns(tests.text) | {"id", "created_at"})
        condition = join_parts("AND", where)
        base = f"FROM training_task t WHERE {condition.text} ORDER BY {order}"
        outer = f"ORDER BY {order} " if is_postgresql() else ""  # SQLite would read all before it sorts
        rows = _fetch(
            Sql(
                f"SELECT t.id, t.created_at FROM (SELECT {columns} {base} LIMIT {most}) t "
                f"WHERE {tests.text} {outer}LIMIT {count}",
                (*condition.values, *tests.values),
            )
        )
        keys = [Key(row[0], None, None, read_moment(row[1])) for row in rows]
        if len(keys) == count:
            return keys, keys[-1], most
        last = _fetch(Sql(f"SELECT t.id, t.created_at {base} LIMIT 1 OFFSET {most - 1}", condition.values))
        behind = Key(last[0][0], None, None, read_moment(last[0][1])) if last else None
        return keys, behind, most if last else len(keys)

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

    def _read_values(self, count: int, most: int, after: Key | None) -> tuple[list[Key], Key | None, int]:
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
        join = "JOIN" if is_postgresql() else "CROSS JOIN"
        outer = f"ORDER BY v.value {first}, v.tie {second} " if is_postgresql() else ""
        rows = _fetch(
            Sql(
                f"SELECT t.id, v.value, v.tie, t.created_at FROM ({inner}) v "
                f"{join} training_task t ON t.id = v.task_id WHERE t.kind = %s AND {self._tests.text} "
                f"{outer}LIMIT {count}",
                (*condition.values, TaskKind.TRAINING.value, *self._tests.values),
            )
        )
        keys = [Key(row[0], row[1], row[2], read_moment(row[3])) for row in rows]
        if len(keys) == count:
            return keys, keys[-1], most
        last = _fetch(Sql(f"SELECT v.task_id, {value}, {tie} {base} LIMIT 1 OFFSET {most - 1}", condition.values))
        behind = Key(last[0][0], last[0][1], last[0][2], datetime(1, 1, 1, tzinfo=UTC)) if last else None
        return keys, behind, most if last else len(keys)

    def _build_value_test(self) -> Sql:
        """Return the test that a task has no value by which the table is sorted."""
        table = get_value_table(self._search.sort.field)
        name = Sql(" AND v.name = %s", (table.name,)) if table.name is not None else Sql("")
        row = (
            f"SELECT 1 FROM {table.table} v WHERE v.task_id = t.id AND v.{table.column} IS NOT NULL{name.text} LIMIT 1"
        )
        return Sql(f"({row}) IS NULL", name.values)


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
        "SELECT id FROM training_task WHERE project_id = %s AND kind = %s ORDER BY created_at DESC, id",
        (project, TaskKind.TRAINING.value),
    )


def _select_all() -> Sql:
    return Sql("SELECT id FROM training_task WHERE kind = %s ORDER BY created_at DESC, id", (TaskKind.TRAINING.value,))
