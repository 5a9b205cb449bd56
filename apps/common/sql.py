"""Queries whose SQL Django makes once, look-ups of many keys, and what a database's refusal means.

    _NAMES = CompiledQuery(
        lambda order, /, project: Task.objects.filter(project=project).order_by(order),
        columns(Task, "id", "name"),
    )
    rows = _NAMES.fetch("-created_at", project="default")     # dictionaries, as `.values("id", "name")` gives them

To make the SQL of a query takes Django ten times as long as a small one takes the database, so the few that nearly
every request asks are compiled. What stands before the slash shapes the query, and each shape has SQL of its own. What
stands behind it are texts, whole numbers and times that the SQL has places for; the query may compare them and do
nothing else with them, since it is made with others in their stead.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import cycle, islice
from typing import Any, Generic, NamedTuple, TypeVar

import orjson
from django.db import DEFAULT_DB_ALIAS, Error, InterfaceError, OperationalError, connection
from django.db.models import BooleanField, DateTimeField, DecimalField, F, JSONField, Model, QuerySet
from django.db.models.lookups import In

MAX_SHAPES = 256  # of a query, kept
MAX_VALUES = 500  # in one statement; SQLite takes no more than a thousand
READ_ONLY_SQLSTATE = "25006"
"""PostgreSQL's state for a write where nothing is written: a standby, or a primary that was told so."""

M = TypeVar("M", bound=Model)
T = TypeVar("T")

Reader = Callable[[Any], Any]
Parameter = str | int | datetime


class CompiledQuery:
    """A query as `build` gives it, with these columns: by name, what reads the database's value (`columns`)."""

    def __init__(self, build: Callable[..., QuerySet[Any, Any]], columns: Mapping[str, Reader | None]) -> None:
        self._build, self._names = build, tuple(columns)
        self._readers = [(index, reader) for index, reader in enumerate(columns.values()) if reader]
        self._compiled = lru_cache(MAX_SHAPES)(self._compile)

    def fetch(self, *shape: Hashable, **parameters: Parameter) -> list[dict[str, Any]]:
        """Return all rows. Raises ValueError for a parameter that the query does not compare as it is, TypeError for
        one that is neither a text, a whole number nor a time."""
        compiled = self._compiled(shape, *((name, type(value)) for name, value in parameters.items()))
        values = list(compiled.values)
        for index, name in compiled.places:
            values[index] = _adapt(parameters[name])
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, values)
            rows = [list(row) for row in cursor.fetchall()]
        for index, read in self._readers:
            for row in rows:
                if row[index] is not None:
                    row[index] = read(row[index])
        return [dict(zip(self._names, row, strict=True)) for row in rows]

    def first(self, *shape: Hashable, **parameters: Parameter) -> dict[str, Any] | None:
        """Return the first row; None where there is none."""
        return next(iter(self.fetch(*shape, **parameters)), None)

    def _compile(self, shape: tuple[Hashable, ...], *kinds: tuple[str, type]) -> "_Compiled":
        stand_ins = {name: _stand_in(index, kind) for index, (name, kind) in enumerate(kinds)}
        sql, values = _statement_of(self._build(*shape, **stand_ins).values_list(*self._names))
        names = {_adapt(value): name for name, value in stand_ins.items()}
        places = tuple((at, names[one]) for at, one in enumerate(values) if isinstance(one, Parameter) and one in names)
        if missing := stand_ins.keys() - {name for _, name in places}:
            raise ValueError(f"the query does not compare {', '.join(sorted(missing))} as it is")
        return _Compiled(sql, tuple(values), places)


class CompiledInstances(Generic[M]):
    """The same of a query for instances of a model, with what `related` names, as `select_related` has it."""

    def __init__(self, model: type[M], build: Callable[..., QuerySet[M]], *related: str) -> None:
        self._model, self._related = model, {name: model._meta.get_field(name).related_model for name in related}
        paths = [*_own(model), *(f"{name}__{own}" for name, other in self._related.items() for own in _own(other))]
        self._query = CompiledQuery(build, list_columns(model, *paths))

    def fetch(self, *shape: Hashable, **parameters: Parameter) -> list[M]:
        """Return all instances. Raises as `CompiledQuery.fetch` does."""
        related: dict[tuple[str, Any], Any] = {}
        return [self._instance(row, related) for row in self._query.fetch(*shape, **parameters)]

    def first(self, *shape: Hashable, **parameters: Parameter) -> M | None:
        """Return the first instance; None where there is none."""
        return next(iter(self.fetch(*shape, **parameters)), None)

    def _instance(self, row: Mapping[str, Any], related: dict[tuple[str, Any], Any]) -> M:
        """Return the instance of a row. `related`: what rows before it refer to, which this one shares with them."""
        found = _instance(self._model, row, "")
        for name, other in self._related.items():
            prefix = f"{name}__"
            key = row[f"{prefix}{other._meta.pk.attname}"]  # type: ignore[union-attr]
            if key is not None and (name, key) not in related:
                related[name, key] = _instance(other, row, prefix)
            setattr(found, name, related.get((name, key)))
        return found


def _own(model: Any) -> list[str]:
    return [field.attname for field in model._meta.concrete_fields]


def _instance(model: Any, row: Mapping[str, Any], prefix: str) -> Any:
    names = _own(model)
    return model.from_db(DEFAULT_DB_ALIAS, names, [row[f"{prefix}{name}"] for name in names])


class _Compiled(NamedTuple):
    """`places`: at which indexes of `values` which parameters go."""

    sql: str
    values: tuple[Any, ...]
    places: tuple[tuple[int, str], ...]


def _statement_of(rows: QuerySet[Any, Any]) -> tuple[str, Sequence[Any]]:
    """Return the SQL of a query and its parameters, as Django executes it once: with stand-ins it finds nothing."""
    executed: list[tuple[str, Sequence[Any]]] = []

    def note(execute: Callable[..., Any], sql: str, values: Sequence[Any] | None, many: bool, context: Any) -> Any:
        executed.append((sql, values or ()))
        return execute(sql, values, many, context)

    with connection.execute_wrapper(note):
        list(rows)
    # beside it may stand what Django asks of the database itself, once, and what other wrappers execute
    table = rows.model._meta.db_table
    return next(one for one in executed if one[0].startswith("SELECT") and table in one[0])


def _stand_in(index: int, kind: type) -> Parameter:
    """Nothing that is stored looks like it."""
    if kind is int:
        return 2**62 - 1 - index
    if issubclass(kind, str):
        return f"\N{SYMBOL FOR NULL}parameter {index}\N{SYMBOL FOR NULL}"
    if kind is datetime:
        return datetime(5000, 1, 1, tzinfo=UTC) + timedelta(microseconds=index)
    raise TypeError(f"{kind.__name__} is neither a text, a whole number nor a time")


def _adapt(parameter: Parameter) -> Any:
    """Return the parameter as the database's driver takes it."""
    if isinstance(parameter, datetime):
        return connection.ops.adapt_datetimefield_value(parameter)
    return parameter


def list_columns(model: type[Model], *paths: str, **annotated: Reader | None) -> dict[str, Reader | None]:
    """Return these columns with what reads them: `paths` as `.values()` takes them; `annotated`, those that the query
    adds, by name (None: as the database gives them). Raises TypeError for a kind of field that is not known here."""
    return {**{path: _reader(_field(model, path)) for path in paths}, **annotated}


def _field(model: Any, path: str) -> Any:
    first, _, rest = path.partition("__")
    field = model._meta.pk if first == "pk" else model._meta.get_field(first)
    return _field(field.related_model, rest) if rest else field


def _reader(field: Any) -> Reader | None:
    field = getattr(field, "target_field", field)
    if not type(field).__module__.startswith("django.db.models."):
        raise TypeError(f"{field} is of a kind that only Django reads")
    if isinstance(field, DecimalField):
        places = Decimal(1).scaleb(-field.decimal_places)
        return lambda value: field.to_python(value).quantize(places)  # SQLite has floating-point numbers
    readers: dict[Any, Reader] = {JSONField: read_json, DateTimeField: read_moment, BooleanField: bool}
    return next((reader for kind, reader in readers.items() if isinstance(field, kind)), None)


def read_json(value: Any) -> Any:
    """Return the value of a column of JSON, which Django has drivers give as text."""
    return orjson.loads(value) if isinstance(value, str | bytes) else value


def read_moment(value: Any) -> datetime:
    """Return a time with its zone; SQLite has texts, or times without a zone, in UTC."""
    found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def make_key_parameters(keys: Iterable[str]) -> dict[str, str]:
    """Return parameters for `lambda **among: Task.objects.filter(pk__in=list(among.values()))`. Filled up to a power of
    two by beginning again, so that few shapes are compiled for any number of them. Not up to eight: from nine values on
    PostgreSQL hashes them, and looks at a hundred thousand rows in half the time."""
    each = list(dict.fromkeys(keys))
    room = 1 << (len(each) - 1).bit_length() if each else 0
    room = 16 if room == 8 else room
    return {f"key{index}": key for index, key in enumerate(islice(cycle(each), room))}


class AnyOf(In):
    """`rows.filter(Among(keys))`: `pk__in`, but on PostgreSQL all keys are one parameter. A thousand of them take as
    long to be written into a statement as it takes to find their rows."""

    def __init__(self, keys: Iterable[str], field: str = "pk") -> None:
        super().__init__(F(field), list(keys))

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        left, parameters = self.process_lhs(compiler, connection)
        return f"{left} = ANY(%s)", [*parameters, self.rhs]


def split_keys(keys: Iterable[T]) -> Iterator[list[T]]:
    """Yield all keys in parts that one statement may name."""
    rest = list(keys)
    return (rest[at : at + MAX_VALUES] for at in range(0, len(rest), MAX_VALUES))


class DatabaseUnavailableError(OperationalError):
    """The database is known to be away: nobody tried to connect for this request."""


def get_refusal_code(error: Error) -> str:
    """Return the code for whoever is answered that the database does not do its part; empty where the fault is not
    its."""
    cause = error.__cause__
    if getattr(cause, "sqlstate", None) == READ_ONLY_SQLSTATE or "SQLITE_READONLY" in getattr(
        cause, "sqlite_errorname", ""
    ):
        return "DATABASE_READ_ONLY"
    return "DATABASE_UNAVAILABLE" if isinstance(error, OperationalError | InterfaceError) else ""
