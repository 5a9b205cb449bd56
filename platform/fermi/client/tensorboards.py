"""TensorBoards of tasks: opened, waited for, listed, ended."""

import builtins
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import MAX_OUTAGE_SECONDS, Transport
from fermi.client.types import DoorTicket, TensorBoardItem

DOOR = "tensorboard"


class Tensorboards:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Listing[TensorBoardItem]:
        """Return the TensorBoards of the caller's projects, newest first."""
        return Listing(self._transport, "/tensorboards", {})

    def open(self, task_ids: Sequence[str]) -> TensorBoardItem:
        """Return the TensorBoard of at most 20 tasks of one project, which is created where there is none. The same
        tasks always have the same one."""
        body = {"taskIds": builtins.list(task_ids)}
        return self._transport.call("POST", "/tensorboards", json=body, repeatable=True)

    def get(self, tensorboard_id: str) -> TensorBoardItem:
        return self._transport.call("GET", _path(tensorboard_id))

    def wait(
        self,
        tensorboard_id: str,
        *,
        timeout: float | None = None,
        patience: float = MAX_OUTAGE_SECONDS,
        seen: Callable[[TensorBoardItem], None] | None = None,
    ) -> TensorBoardItem:
        """Wait until it is no longer starting, and return it. `seen` is called with each poll's result. Raise
        TimeoutError after `timeout` seconds."""

        def has_ended(found: Any) -> bool:
            if seen:
                seen(found)
            return bool(found["state"] != "starting")

        return self._transport.wait(_path(tensorboard_id), has_ended, tensorboard_id, timeout, patience)

    def door(self, board: TensorBoardItem) -> DoorTicket:
        """Return `{"url", "expiresAt"}`: an address that admits one browser, once and for a short time."""
        path = f"/dev-environments/{quote(board['environmentId'], safe='')}/doors"
        return self._transport.call("POST", path, json={"door": DOOR}, repeatable=True)

    def delete(self, tensorboard_id: str) -> None:
        """End it and delete what it has copied. The tasks keep what they have."""
        self._transport.call("DELETE", _path(tensorboard_id))


def _path(tensorboard_id: str) -> str:
    return f"/tensorboards/{quote(tensorboard_id, safe='')}"
