"""The process that sends: reads orders from its standard input, a line of JSON each, and answers each with a line.

An order is {"do": "check" | "webhook" | "notify", "hosts": […], "seconds": …, …}; the answer is {"answer": "…"} or
{"code": "…", "params": {…}, "answer": "…", "lasting": …}. Without Django: it knows no setting, no secret and no file of
the platform.
"""

import json
import os
import signal
import socket
from collections.abc import Mapping
from typing import Any

from apps.notices.sender import addresses, sandbox, transport
from apps.notices.sender.egress_policy import AllowedHosts, enforce_policy
from apps.notices.sender.errors import DeliveryError


def main() -> None:
    """Carry out orders until the platform closes the connection or dies."""
    with socket.socket(fileno=os.dup(0)) as connection, connection.makefile("rwb") as orders:
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.close(null)
        readable = sandbox.list_readable_paths()
        sandbox.confine_process(readable)
        for line in orders:
            order = json.loads(line)
            signal.alarm(int(order["seconds"]) + 1)  # the process that would end this one may be dead
            answer = json.dumps(carry_out_order(order, readable)).encode()
            signal.alarm(0)
            orders.write(answer + b"\n")
            orders.flush()


def carry_out_order(order: Mapping[str, Any], readable: list[str] | None = None) -> dict[str, Any]:
    """Return the result of an order."""
    allowed = AllowedHosts(order["hosts"])
    with enforce_policy(allowed, readable) as refused:
        try:
            match order["do"]:
                case "check":
                    return {"answer": addresses.check_address(order["address"], allowed)}
                case "webhook":
                    return {"answer": transport.post_webhook(order)}
                case _:
                    return {"answer": transport.send_notification(order)}
        except DeliveryError as error:
            unsent = DeliveryError("CHANNEL_HOST_REFUSED", host=refused.host) if refused.host else error
        except Exception as error:
            unsent = DeliveryError("CHANNEL_AWAY", why=f"{type(error).__name__}: {error}"[:500])
    return {"code": unsent.code, "params": unsent.params, "answer": unsent.answer, "lasting": unsent.lasting}
