"""The tools as a server of the official MCP SDK. Only this module of the package imports the SDK."""

import json
import logging
from collections.abc import Callable
from importlib import metadata
from typing import Any

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from pydantic import ValidationError

from fermi.mcp.caller import ApiProblemError, Caller
from fermi.mcp.outside_text import INSTRUCTIONS, clean_text, mark_text
from fermi.mcp.tools import TOOLS
from fermi.mcp.tools.definition import MAX_ANSWER_BYTES, Answer, Tool, measure, suggest
from fermi.mcp.tools.submission import summarise_problem

log = logging.getLogger(__name__)

NAME = "fermi"
ABOUT = (
    "Fermi runs distributed training on machines with GPUs. A task is one training job; its ranks are processes. "
    "Answers are short; `next` lists sensible next calls. Start with list_environments and list_inputs, check a task "
    "with preview_task, create it with submit_task, follow it with get_task, and ask explain_task why it is as it is. "
    "What an error with `proposal` refuses was not done: a person has to approve it first, on the console's page "
    "`decidedAt`; do not send it again. "
)
DISTRIBUTION = "fermi-training"
MAX_PROBLEMS = 10

GetCaller = Callable[[ServerRequestContext[Any, Any]], Caller]


def make_server(get_caller: GetCaller, version: str) -> Server[Any]:
    """Return a server whose tools call the API through `get_caller(context)` of each request. It lists only tools whose
    scopes the caller has."""

    async def list_tools(
        context: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        caller = get_caller(context)
        return types.ListToolsResult(tools=[describe_tool(one) for one in TOOLS.values() if may_use(caller, one)])

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return make_result(*await run_tool(get_caller(context), params.name, params.arguments or {}))

    return Server(
        NAME,
        version=version,
        title="Fermi",
        instructions=ABOUT + INSTRUCTIONS,
        get_tool_input_schema=_get_schema,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def find_version() -> str:
    """Return the version of the installed distribution; empty where the code is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""


def _get_schema(name: str) -> dict[str, Any] | None:
    return TOOLS[name].build_schema() if name in TOOLS else None


def may_use(caller: Caller, tool: Tool) -> bool:
    """Return True if the caller has all scopes of the tool."""
    return all(caller.has_scope(scope) for scope in tool.scopes)


def describe_tool(tool: Tool) -> types.Tool:
    """Return the tool as `tools/list` has it."""
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.build_schema(),
        annotations=types.ToolAnnotations(
            read_only_hint=not tool.changes, destructive_hint=tool.destructive, open_world_hint=False
        ),
    )


async def run_tool(caller: Caller, name: str, arguments: dict[str, Any]) -> tuple[Answer, bool]:
    """Return the tool's answer and False, or an error and True. A call that the API refuses is such an error, with the
    API's code, messages and hints."""
    tool = TOOLS.get(name)
    if tool is None:
        return {"error": {"code": "TOOL_UNKNOWN", "name": clean_text(name, 100), "known": list(TOOLS)}}, True
    try:
        given = tool.arguments.model_validate(arguments)
    except ValidationError as error:
        return {"error": {"code": "ARGUMENTS_INVALID", "problems": _list_problems(error)}}, True
    try:
        return await tool.run(caller, given), False
    except ApiProblemError as problem:
        return _describe_problem(caller, problem), True
    except Exception:
        log.exception("the tool %s failed", name)
        return {"error": {"code": "INTERNAL_ERROR"}}, True


def _list_problems(error: ValidationError) -> list[dict[str, str]]:
    return [
        {"field": clean_text(".".join(map(str, one["loc"])), 200), "problem": clean_text(one["msg"], 300)}
        for one in error.errors(include_url=False, include_context=False, include_input=False)[:MAX_PROBLEMS]
    ]


def _describe_problem(caller: Caller, problem: ApiProblemError) -> Answer:
    error: Answer = {"status": problem.status, "code": problem.code}
    problems = [summarise_problem(one) for one in problem.errors[:MAX_PROBLEMS]]
    if problems:
        error["problems"] = problems
    elif problem.message:
        error["message"] = mark_text(problem.message)
    if len(problem.errors) > MAX_PROBLEMS:
        error["problemCount"] = len(problem.errors)
    if problem.request_id:
        error["requestId"] = clean_text(problem.request_id, 64)
    if problem.proposal:
        error["proposal"] = clean_text(problem.proposal, 100)
        if problem.address:
            error["decidedAt"] = clean_text(problem.address, 200)
        if may_use(caller, TOOLS["get_proposal"]):
            error["next"] = [suggest("get_proposal", "PERSON_DECIDES", proposal_id=error["proposal"], wait_seconds=60)]
    return {"error": error}


def make_result(answer: Answer, is_error: bool) -> types.CallToolResult:
    """Return the answer as the protocol has it: as JSON text and as structured content. One that is larger than any
    tool's answer may be is replaced by an error."""
    if measure(answer) > MAX_ANSWER_BYTES:
        answer, is_error = {"error": {"code": "ANSWER_TOO_LARGE", "next": [suggest("list_tasks", "NARROWER")]}}, True
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=answer, is_error=is_error
    )
