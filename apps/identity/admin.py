"""Accounts at identity providers in the operators' console."""

from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib import admin

__all__: list[str] = []

# Providers are set up through the API, which encrypts their secrets, and links are made by services, which record them.
for model in (SocialApp, SocialToken, SocialAccount):
    if admin.site.is_registered(model):
        admin.site.unregister(model)
