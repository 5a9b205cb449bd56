"""Clients and tokens of the authorization server in the operators' console."""

from allauth.idp.oidc.models import Client, Token
from django.contrib import admin

__all__: list[str] = []

# Grants are given and ended by services, which record them; a token's row is ended together with its grant.
for model in (Client, Token):
    if admin.site.is_registered(model):
        admin.site.unregister(model)
