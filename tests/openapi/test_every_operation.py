"""Requests made from the published schema, good ones and bad ones, to every operation there is.

FERMI_API_SEED, FERMI_API_EXAMPLES: another seed, or more requests to each operation (`make check-api`).
"""

import os
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from asgiref.sync import async_to_sync
from django.test import Client
from schemathesis.core.failures import Failure
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.openapi.conftest import Turns, World

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
SEED = int(os.environ.get("FERMI_API_SEED") or 1)
EXAMPLES = int(os.environ.get("FERMI_API_EXAMPLES") or 3)
SHAPE = {"BODY_NOT_OBJECT", "PARSE_ERROR", "UNKNOWN_FIELD", "WRONG_TYPE"}
"""With FIELD_…: codes that say that a request is not as the schema has it. All others judge what is asked for: whether
it is there, allowed, possible now."""
REFUSALS = ["400", "401", "403", "404", "405", "409", "413", "415"]

pytestmark = [pytest.mark.database, pytest.mark.django_db]

schema = schemathesis.openapi.from_path(
    DOCUMENT,
    config=schemathesis.Config.from_dict(
        {
            "base-url": "http://localhost",
            "seed": SEED,
            "generation": {
                "deterministic": "FERMI_API_SEED" not in os.environ, "max-examples": EXAMPLES, "database": "none",
                "allow-x00": False, "with-security-parameters": False, "no-shrink": False,
            },
            "checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}},
            "suppress-health-check": ["all"],
        }
    ),
)  # fmt: skip


def no_shape_refused(context: Any, response: Response, case: Any) -> None:
    """The schema's promise: what it allows is never refused for its shape."""
    if not case.meta.generation.mode.is_positive or response.status_code != 400:
        return
    problems = [one for one in response.json()["errors"] if one["error"].startswith("FIELD_") or one["error"] in SHAPE]
    if problems:
        raise Failure(operation=case.operation.label, title="The schema allows what is refused", message=f"{problems}")


def no_fault_of_ours(context: Any, response: Response, case: Any) -> None:
    if response.status_code >= 500:
        text = response.content.decode(errors="replace")[:2000]
        raise Failure(operation=case.operation.label, title="A fault of the server", message=text)


def no_breach_accepted(context: Any, response: Response, case: Any) -> None:
    """What breaks the document is refused; a preview refuses in `problems`, beside what it can show."""
    if response.status_code != 200 or not (case.path.endswith("/preview") and response.json()["data"].get("problems")):
        negative_data_rejection(context, response, case)


CHECKS = [
    no_fault_of_ours, status_code_conformance, content_type_conformance, response_schema_conformance, no_shape_refused,
    no_breach_accepted,
]  # fmt: skip


@schema.parametrize()
def test_an_operation_conforms_to_the_schema(case: Any, world: World, turns: Turns) -> None:
    judge(case, world, turns)


def judge(case: Any, world: World, turns: Turns) -> None:
    """Sends the request; raises FailureGroup with what is wrong with the answer."""
    turn = turns()
    if turn % 2:
        _name_what_is_there(case, world, turn)
    [kind, *_] = [name for way in case.operation.definition.raw.get("security", [{}]) for name in way] or [""]
    with world.untouched():
        response = _sent(case, world.token(kind, turn // 2) if kind else "")
    case.validate_response(response, checks=CHECKS)


def _name_what_is_there(case: Any, world: World, turn: int) -> None:
    """Ids of what exists, where the request names anything; never in the part that is wrong on purpose."""
    parts = case.meta.components
    for place, values in ((ParameterLocation.PATH, case.path_parameters), (ParameterLocation.QUERY, case.query)):
        if values and place in parts and parts[place].mode.is_positive:
            for name, value in list(values.items()):
                values[name] = _known(world, name, value, turn)
    body = parts.get(ParameterLocation.BODY)
    if body is not None and body.mode.is_positive and isinstance(case.body, dict):
        case.body = {name: _known(world, name, value, turn) for name, value in case.body.items()}


def _known(world: World, name: str, value: Any, turn: int) -> Any:
    if isinstance(value, dict):
        return {key: _known(world, key, inner, turn) for key, inner in value.items()}
    there = world.known.get(name)
    if there is None or value is None:
        return value
    return there[: len(value)] if isinstance(value, list) else there[turn // 2 % len(there)]


def _sent(case: Any, token: str) -> Response:
    asked = requests.Request(**{**case.as_transport_kwargs(), "cookies": None}).prepare()
    headers = {**asked.headers, **({"Authorization": f"Bearer {token}"} if token else {})}
    content_type = headers.pop("Content-Type", "application/octet-stream")
    headers.pop("Content-Length", None)
    body = asked.body.encode() if isinstance(asked.body, str) else asked.body or b""
    answer = Client(raise_request_exception=False).generic(
        asked.method, asked.url.removeprefix("http://localhost"), body, content_type=content_type, headers=headers
    )
    content = async_to_sync(_beginning)(answer) if answer.streaming else answer.content
    told = {name: [value] for name, value in answer.headers.items()}
    return Response(answer.status_code, told, content, asked, elapsed=0.0, verify=False)


async def _beginning(answer: Any, pieces: int = 2) -> bytes:
    """Of a body that may never end. A stream has two pieces at once: when to come back, and the status."""
    found = []
    async for piece in answer:
        found.append(piece)
        if len(found) == pieces:
            break
    await answer._iterator.aclose() if hasattr(answer._iterator, "aclose") else None
    return b"".join(found)
