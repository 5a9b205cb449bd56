"""Endpoint that gives programs access to an environment."""

from rest_framework import serializers

from apps.accounts.models import ApiToken
from apps.common.api import APIView, Body, Data, Request, operation
from apps.proxy import tickets
from apps.proxy.hostnames import MAX_LABEL_LENGTH, MAX_PATH_LENGTH


class DoorRequest(serializers.Serializer):
    door = serializers.CharField(required=False, max_length=MAX_LABEL_LENGTH, default="", allow_blank=True)
    path = serializers.CharField(required=False, max_length=MAX_PATH_LENGTH, default="/", allow_blank=True)


class DoorTicket(serializers.Serializer):
    url = serializers.CharField()
    expiresAt = serializers.DateTimeField()


class DoorsView(APIView):
    @operation("openDoor", scope="environments:open", body=DoorRequest, data=DoorTicket, status=201)
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
