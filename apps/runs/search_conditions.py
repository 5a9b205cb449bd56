"""The conditions of a query as SQL: tests of one task.

A test is a boolean about the row `t` of the table of tasks, never NULL. Tests read other tables by scalar subqueries,
which are evaluated for each row: PostgreSQL would make joins of EXISTS and might read the whole other table.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection

from apps.common.clock import now
from apps.common.sql import read_moment
from fermi.metrics.ratings import is_more_better
from fermi.runs.fields import Field, FieldGroup, Statistic
from fermi.runs.query import Condition, Operator, Value, Word
from fermi.scheduler.snapshot import PRIORITY_NUMBERS


class Sql(NamedTuple):
    """A part of a statement, and the values of its parameters."""

    text: str
    values: tuple[Any, ...] = ()


TRUE, FALSE = Sql("TRUE"), Sql("FALSE")


def is_postgresql() -> bool:
    return connection.vendor == "postgresql"


def join_parts(word: str, parts: Iterable[Sql]) -> Sql:
    """Return the parts with AND or OR between them."""
    found = list(parts)
    text = f" {word} ".join(f"({part.text})" for part in found)
    return Sql(text, tuple(value for part in found for value in part.values))


def adapt_time(moment: datetime) -> Any:
    """Return a moment as the database's driver reads it."""
    return connection.ops.adapt_datetimefield_value(moment)


def select_created() -> str:
    """Return when a task was created, as SQL for `read_created`: of a number the driver makes a time faster."""
    return "EXTRACT(EPOCH FROM t.created_at)::float8" if is_postgresql() else "t.created_at"


def read_created(value: Any) -> datetime:
    """Return the time that `select_created` selects, exact to the microsecond."""
    return datetime.fromtimestamp(value, UTC) if isinstance(value, float) else read_moment(value)


def match_keys(column: str, keys: Sequence[str]) -> Sql:
    """Return whether a column is one of the keys, as one parameter."""
    if is_postgresql():  # as one text: the driver needs longer for a list of thousands than the database for its rows
        return Sql(f"{column} = ANY(%s::text[])", (_write_array(keys),))
    return Sql(f"{column} IN (SELECT value FROM json_each(%s))", (json.dumps(list(keys)),))


def _write_array(keys: Sequence[str]) -> str:
    """Return the keys as PostgreSQL writes an array."""
    text = '","'.join(key.replace("\\", "\\\\").replace('"', '\\"') for key in keys)
    return f'{{"{text}"}}' if keys else "{}"


def match_pattern(column: str, pattern: str) -> Sql:
    """Return whether a column matches a pattern of LIKE with `\\` as escape, in either case."""
    if is_postgresql():  # as the index of migration 0014 of training has it
        return Sql(f"UPPER({column}::text) LIKE UPPER(%s)", (pattern,))
    return Sql(f"{column} LIKE %s ESCAPE '\\'", (pattern,))


def escape_pattern(text: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", text)


def match_text(column: str, operator: Operator, values: Sequence[Value]) -> Sql:
    """Return whether a column of text, which may be NULL, fulfils a condition."""
    if operator is Operator.CONTAINS:
        return match_pattern(column, f"%{escape_pattern(values[0].text)}%")
    if operator is Operator.UNEQUAL:
        return Sql(f"{column} <> %s", (values[0].text,))
    if operator is Operator.EQUAL:
        return Sql(f"{column} = %s", (values[0].text,))
    parts = []
    if exact := [value.text for value in values if not value.is_pattern]:
        parts.append(Sql(f"{column} = %s", tuple(exact)) if len(exact) == 1 else match_keys(column, exact))
    for value in values:
        if value.is_any:
            parts.append(Sql(f"{column} <> ''"))
        elif value.is_pattern:
            parts.append(match_pattern(column, escape_pattern(value.text).replace("*", "%")))
    return join_parts("OR", parts)


def match_number(column: str, operator: Operator, values: Sequence[Value]) -> Sql:
    """Return whether a column of numbers, which may be NULL, fulfils a condition."""
    if operator is Operator.IS:
        if any(value.is_any for value in values):
            return Sql(f"{column} IS NOT NULL")
        return join_parts("OR", (Sql(f"{column} = %s", (value.number,)) for value in values))
    sign = "<>" if operator is Operator.UNEQUAL else operator.value
    return Sql(f"{column} {sign} %s", (values[0].number,))


def match_time(column: str, operator: Operator, values: Sequence[Value]) -> Sql:
    """Return whether a column of times, which may be NULL, fulfils a condition: all of its day or minute."""
    if operator in (Operator.IS, Operator.EQUAL, Operator.UNEQUAL):
        if any(value.is_any for value in values):
            return Sql(f"{column} IS NOT NULL")
        within = join_parts(
            "OR",
            (Sql(f"{column} >= %s AND {column} < %s", _get_ends(value)) for value in values),
        )
        return Sql(f"NOT ({within.text})", within.values) if operator is Operator.UNEQUAL else within
    begins, ends = _get_ends(values[0])
    behind = operator in (Operator.ABOVE, Operator.AT_MOST)  # the first moment that is not meant by the text
    sign = "<" if operator in (Operator.BELOW, Operator.AT_MOST) else ">="
    return Sql(f"{column} {sign} %s", (ends if behind else begins,))


def _get_ends(value: Value) -> tuple[Any, Any]:
    assert value.begins is not None
    assert value.ends is not None
    return adapt_time(value.begins), adapt_time(value.ends)


_REVERSED = {Operator.BELOW: ">", Operator.AT_MOST: ">=", Operator.ABOVE: "<", Operator.AT_LEAST: "<="}


def match_age(column: str, operator: Operator, values: Sequence[Value]) -> Sql:
    """Return whether so much time has passed since a column."""
    moment = now() - timedelta(seconds=values[0].number or 0)
    return Sql(f"{column} {_REVERSED[operator]} %s", (adapt_time(moment),))


def match_parameter(operator: Operator, values: Sequence[Value]) -> Sql:
    """Return whether a parameter `v` fulfils a condition. Numbers are compared as numbers, whatever their spelling; a
    number with a suffix (`10k`) is also compared as the text that it is."""
    if operator is Operator.UNEQUAL:
        [value] = values
        if value.number is None:
            return Sql("v.value <> %s", (value.text,))
        return Sql("(v.number IS NULL OR v.number <> %s) AND v.value <> %s", (value.number, value.text))
    if operator in (Operator.IS, Operator.EQUAL):
        if operator is Operator.IS and any(value.is_any for value in values):
            return TRUE
        parts = [Sql("v.number = %s", (value.number,)) for value in values if value.number is not None]
        texts = [value for value in values if value.number is None or value.text[-1:] in "kKMGT%"]
        if texts:
            parts.append(match_text("v.value", operator, texts))
        return join_parts("OR", parts)
    if operator is Operator.CONTAINS:
        return match_text("v.value", operator, values)
    return match_number("v.number", operator, values)


def measure_duration() -> Sql:
    """Return how long a task has run, in seconds, as SQL."""
    moment = adapt_time(now())
    if is_postgresql():
        return Sql("EXTRACT(EPOCH FROM (COALESCE(t.ended_at, %s) - t.started_at))", (moment,))
    return Sql("((julianday(COALESCE(t.ended_at, %s)) - julianday(t.started_at)) * 86400.0)", (moment,))


def read_progress(name: str) -> str:
    """Return a number within the progress of a task, as SQL; NULL where it is none."""
    if is_postgresql():
        path = f"t.progress -> '{name}'"
        return f"CASE WHEN jsonb_typeof({path}) = 'number' THEN ({path})::double precision END"
    path = f"t.progress, '$.{name}'"
    return f"CASE WHEN json_type({path}) IN ('integer', 'real') THEN json_extract({path}) END"


def read_code() -> str:
    if is_postgresql():
        return "t.spec #>> '{code,snapshot}'"
    return "json_extract(t.spec, '$.code.snapshot')"


def _is_in(table: str, on: str, condition: Sql) -> Sql:
    """Return whether a row of another table fulfils a condition. `on`: which rows are of the task."""
    return Sql(f"(SELECT 1 FROM {table} WHERE {on} AND ({condition.text}) LIMIT 1) IS NOT NULL", condition.values)


def _compare_priority(operator: Operator, values: Sequence[Value]) -> Sql:
    """Return whether the class of a task's priority is one of the values (`scheduler.snapshot.classify_priority`)."""
    if any(value.is_any for value in values):
        return TRUE
    high, urgent = PRIORITY_NUMBERS["high"], PRIORITY_NUMBERS["urgent"]
    ranges = {
        "low": "t.priority < 0",
        "normal": "t.priority = 0",
        "high": f"t.priority >= {high} AND t.priority < {urgent}",
        "urgent": f"t.priority >= {urgent}",
    }
    found = join_parts("OR", (Sql(ranges[value.text]) for value in values))
    return Sql(f"NOT ({found.text})") if operator is Operator.UNEQUAL else found


TextMatcher = Callable[[Callable[[str], Sql]], Sql]


def _match_either(table: str, on: str, *columns: str) -> TextMatcher:
    """Return a matcher that finds rows of another table in which any of the columns fulfils the condition."""
    return lambda match: _is_in(table, on, join_parts("OR", (match(column) for column in columns)))


_VERSION = "catalog_datasetversion v JOIN catalog_dataset d ON d.id = v.dataset_id"
_TRIAL = "sweeps_trial x JOIN sweeps_sweep s ON s.id = x.sweep_id"
_NODE = ("training_node n", "n.task_id = t.id")
TEXTS: dict[str, TextMatcher] = {
    "id": lambda match: match("t.id"),
    "name": lambda match: match("t.name"),
    "reason": lambda match: match("t.reason"),
    "framework": lambda match: match("t.framework"),
    "code": lambda match: match(read_code()),
    "project": _match_either("accounts_project p", "p.id = t.project_id", "p.id", "p.name"),
    "owner": _match_either("accounts_user u", "u.id = t.owner_id", "u.username"),
    "cluster": _match_either("clusters_cluster c", "c.id = t.cluster_id", "c.id", "c.name"),
    "model": _match_either("catalog_model m", "m.id = t.model_id", "m.id", "m.name"),
    "data": _match_either(_VERSION, "v.id = t.dataset_version_id", "d.id", "d.name", "(d.name || ' ' || v.name)"),
    "environment": _match_either(*_NODE, "n.environment_id", "n.name"),
    "zone": _match_either(*_NODE, "n.zone"),
    "gpuType": _match_either(*_NODE, "n.gpu_type"),
    "tag": _match_either("runs_runtag g", "g.task_id = t.id", "g.name"),
    "sweep": _match_either(_TRIAL, "x.task_id = t.id", "s.id", "s.name"),
    "note": _match_either("runs_run r", "r.task_id = t.id", "r.note"),
}
"""How each property of text is matched."""
NUMBER_COLUMNS = {"nodes": "t.node_count", "gpus": "t.total_gpus", "attempts": "t.attempt"}
TIME_COLUMNS = {"created": "t.created_at", "started": "t.started_at", "ended": "t.ended_at"}
COST_COLUMNS = {"cost": "cost", "gpuHours": "gpu_hours", "goodput": "goodput"}


def get_summary_column(field: Field) -> str:
    """Return the column of a curve's summary that a field means."""
    if field.statistic is Statistic.BEST:
        return "high" if is_more_better(field.name) else "low"
    return {Statistic.LAST: "last", Statistic.MIN: "low", Statistic.MAX: "high"}[field.statistic or Statistic.LAST]


def build_test(condition: Condition | Word) -> Sql:
    """Return the test of a condition."""
    found = _build_nullable_test(condition)
    if found is TRUE or found.text.endswith(" IS NOT NULL"):
        return found
    return Sql(f"COALESCE({found.text}, FALSE)", found.values)


def _build_nullable_test(condition: Condition | Word) -> Sql:
    if isinstance(condition, Word):
        pattern = f"%{escape_pattern(condition.text)}%"
        return join_parts("OR", (match_pattern("t.name", pattern), match_pattern("t.id", pattern)))
    field, operator, values = condition.field, condition.operator, condition.values
    if field.group is FieldGroup.PARAMETER:
        found = match_parameter(operator, values)
        on = "v.task_id = t.id AND v.name = %s"
        return _prefix(_is_in("training_taskparameter v", on, found), field.name)
    if field.group is FieldGroup.METRIC:
        found = match_number(f"v.{get_summary_column(field)}", operator, values)
        on = "v.task_id = t.id AND v.name = %s"
        return _prefix(_is_in("training_metricsummary v", on, found), field.name)
    if field.group is FieldGroup.COST:
        found = match_number(f"r.{COST_COLUMNS[field.name]}", operator, values)
        return _is_in("runs_run r", "r.task_id = t.id", found)
    if column := NUMBER_COLUMNS.get(field.name):
        return match_number(column, operator, values)
    if column := TIME_COLUMNS.get(field.name):
        return match_time(column, operator, values)
    match field.name:
        case "status":
            return TRUE if any(value.is_any for value in values) else match_text("t.state", operator, values)
        case "priority":
            return _compare_priority(operator, values)
        case "archived":
            return _compare_archived(operator, values)
        case "age":
            return match_age("t.created_at", operator, values)
        case "duration":
            seconds = measure_duration()
            found = match_number(seconds.text, operator, values)
            return Sql(found.text, seconds.values + found.values)
        case "step" | "loss":
            return match_number(read_progress(field.name), operator, values)
    return TEXTS[field.name](lambda column: match_text(column, operator, values))


def _prefix(found: Sql, name: str) -> Sql:
    return Sql(found.text, (name, *found.values))


def build_archive_test(*, archived: bool) -> Sql:
    """Return whether a task is archived, or is not."""
    row = "(SELECT 1 FROM runs_run r WHERE r.task_id = t.id AND r.archived_at IS NOT NULL LIMIT 1)"
    return Sql(f"{row} IS {'NOT ' if archived else ''}NULL")


def _compare_archived(operator: Operator, values: Sequence[Value]) -> Sql:
    named = {value.text for value in values}
    if "*" in named or len(named) > 1:
        return TRUE
    return build_archive_test(archived=(named == {"yes"}) is not (operator is Operator.UNEQUAL))
