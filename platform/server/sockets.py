"""WebSocket protocol of the web process."""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol with a fix: a refusal with a response (`websocket.http.response`) completes the handshake;
    uvicorn 0.54 sends it, and then logs an error as if there had been none."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True
