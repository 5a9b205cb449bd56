"""Events by HTTP: each batch is one POST of JSON lines, signed as the webhooks of notices are."""

import asyncio
import ssl
import time
from collections.abc import Sequence
from typing import Any

import httpx

from apps.audit_stream.receivers import ReceiverError, encode_event
from apps.notices.sender.request import SIGNATURE_HEADER, sign_body

TOTAL_SECONDS, CONNECT_SECONDS = 15.0, 5.0
MAX_ANSWER_BYTES = 1024
CONTENT_TYPE = "application/x-ndjson"
EVENTS_HEADER = "X-Fermi-Audit-Events"
"""Header with the ids of the first and the last event, such as `4711-4790`."""


def send_webhook(address: str, secret: str, events: Sequence[dict[str, Any]], *, ca_file: str = "") -> None:
    """Post the events and return once the receiver has answered with 2xx. Raises ReceiverError for every other answer,
    and for none within TOTAL_SECONDS."""
    body = b"".join(encode_event(event) + b"\n" for event in events)
    stamp = int(time.time())
    headers = {
        "Content-Type": CONTENT_TYPE,
        "User-Agent": "Fermi",
        EVENTS_HEADER: f"{events[0]['id']}-{events[-1]['id']}",
        SIGNATURE_HEADER: f"t={stamp},v1={sign_body(secret, stamp, body)}",
    }
    try:
        trusted = ssl.create_default_context(cafile=ca_file or None)
        posting = _post(address, body, headers, trusted)
        status, answer = asyncio.run(asyncio.wait_for(posting, TOTAL_SECONDS))
    except TimeoutError:
        raise ReceiverError(f"no answer within {TOTAL_SECONDS:.0f} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise ReceiverError(str(error) or type(error).__name__) from error
    if not 200 <= status < 300:
        raise ReceiverError(f"{status} {answer}".strip())


async def _post(address: str, body: bytes, headers: dict[str, str], trusted: ssl.SSLContext) -> tuple[int, str]:
    """Return the status and the beginning of the answer."""
    timeout = httpx.Timeout(TOTAL_SECONDS, connect=CONNECT_SECONDS)
    async with (
        httpx.AsyncClient(timeout=timeout, follow_redirects=False, trust_env=False, verify=trusted) as client,
        client.stream("POST", address, content=body, headers=headers) as response,
    ):
        answer = b""
        async for chunk in response.aiter_raw():
            answer += chunk
            if len(answer) >= MAX_ANSWER_BYTES:
                break
        return response.status_code, answer[:MAX_ANSWER_BYTES].decode(errors="replace")
