"""Endpoint that gives programs access to an environment."""

from apps.accounts.models import ApiToken
from apps.common.api import APIView, Body, Data, Request, operation
from apps.proxy import tickets
from apps.proxy.api import serializers


class DoorsView(APIView):
    @operation("openDoor", body=serializers.DoorRequest, data=serializers.DoorTicket, status=201)
    def post(self, request: Request, environment_id: str, body: Body) -> Data:
        """Return an address that opens the environment once, within a minute; its cookies stay valid for as long as
        they are used."""
        token = request.auth if isinstance(request.auth, ApiToken) else None
        session = "" if token else request.session.session_key or ""
        console = f"{request.scheme}://{request.get_host()}"
        ticket = tickets.create_ticket(
            request.user, environment_id, **body, console=console, session=session, token=token
        )
        return {"url": ticket.url, "expiresAt": ticket.expires_at}
