"""The platform's URLs, and a view that does as little as REST framework can: what the API is compared with."""

from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from server.urls import urlpatterns as platform


class EmptyView(APIView):
    authentication_classes = ()
    permission_classes = ()

    def get(self, request: Request) -> Response:
        return Response({"code": 200, "message": "OK", "data": {}})


urlpatterns = [path("bench/bare", EmptyView.as_view()), *platform]
