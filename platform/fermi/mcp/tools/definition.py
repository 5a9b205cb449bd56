"""What a tool is, and what the tools share: bounded arguments and answers of a bounded size."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from fermi.mcp.caller import Caller

ANSWER_BYTES = 4000
"""Of the JSON of an answer, where the caller does not ask for more."""

MAX_ANSWER_BYTES = 16_000

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$")]
"""Id of a task, an environment, a project: it becomes a part of a path."""

Word = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Answer = dict[str, Any]
T = TypeVar("T")


class Arguments(BaseModel):
    """Base of the arguments of tools: unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


class TaskArguments(Arguments):
    task_id: Id = Field(description="Id of the task, such as task-ga8rvfce3c.")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `scopes`: of the operations that it calls, all of which a token needs; `changes`: it changes something;
    `destructive`: what it ends cannot be had back."""

    name: str
    description: str
    scopes: tuple[str, ...]
    arguments: type[Arguments]
    run: Callable[[Caller, Any], Awaitable[Answer]]
    changes: bool = False
    destructive: bool = False

    def build_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments, without titles."""
        return _drop_titles(self.arguments.model_json_schema())


Run = Callable[[Caller, Any], Awaitable[Answer]]


def tool(
    *scopes: str, arguments: type[Arguments], changes: bool = False, destructive: bool = False
) -> Callable[[Run], Tool]:
    """Return a decorator that makes a tool of a function: its name is the tool's, its docstring the description."""

    def decorate(run: Run) -> Tool:
        description = " ".join((run.__doc__ or "").split())
        return Tool(run.__name__, description, scopes, arguments, run, changes, destructive)

    return decorate


def _drop_titles(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_drop_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {key: _drop_titles(one) for key, one in value.items()} if name == "properties" else _drop_titles(value)
        for name, value in schema.items()
        if name != "title" or not isinstance(value, str)
    }


def drop_none(fields: dict[str, Any]) -> Answer:
    """Return the entries that have a value: no None, no empty list, text or object."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", [], {})}


def suggest(tool_name: str, why: str, **arguments: Any) -> dict[str, Any]:
    """Return an entry of `next`: a tool, its arguments, and a code or a few words of ours for why."""
    return {"tool": tool_name, "arguments": drop_none(arguments), "why": why}


def measure(value: Any) -> int:
    """Return the bytes of the value as JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def fit(items: Sequence[T], budget: int) -> list[T]:
    """Return the first items whose JSON is within the budget in bytes, one at least where there is one."""
    kept: list[T] = []
    for one in items:
        budget -= measure(one) + 1
        if budget < 0 and kept:
            break
        kept.append(one)
    return kept
