"""A message to the workers, as Celery's protocol 2 and Kombu's Redis transport have it: to write it takes a tenth of
what they take, and they take 20 MiB of a process that only sends. Imported without Django, too."""

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import orjson

QUEUE = "celery"


def message(name: str, *args: str, expires: float | None = None) -> bytes:
    """`expires`: seconds after which no worker is to take it any more."""
    key = str(uuid4())
    body = orjson.dumps([args, {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
    headers: dict[str, Any] = {
        "lang": "py",
        "task": name,
        "id": key,
        "root_id": key,
        "parent_id": None,
        "argsrepr": repr(args),
        "kwargsrepr": "{}",
        "ignore_result": True,
    }
    if expires is not None:
        headers["expires"] = (datetime.now(UTC) + timedelta(seconds=expires)).isoformat()
    return orjson.dumps(
        {
            "body": b64encode(body).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": headers,
            "properties": {
                "correlation_id": key,
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": QUEUE},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid4()),
            },
        }
    )
