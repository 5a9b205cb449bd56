"""How people may sign in: one row, which is there once an administrator has changed anything."""

from django.db import models

POLICY_KEY = 1
MAX_TITLE_LENGTH, MAX_TEXT_LENGTH = 200, 10_000


class SecondFactorRule(models.TextChoices):
    """Whose accounts with a password need a second factor."""

    NOBODY = "nobody"
    ADMINISTRATORS = "administrators"
    EVERYBODY = "everybody"


class SignInPolicy(models.Model):
    """`session_hours`, `idle_minutes`: 0 is no limit of ours. `tokens_exempt`: API tokens of people who lack a required
    second factor work on. The banner is shown before sign-in; `banner_version` grows with each change of it, and with
    `banner_required` people accept it in each session."""

    password_length = models.IntegerField(default=8)
    second_factor = models.CharField(max_length=20, choices=SecondFactorRule, default=SecondFactorRule.NOBODY)
    tokens_exempt = models.BooleanField(default=False)
    session_hours = models.IntegerField(default=0)
    idle_minutes = models.IntegerField(default=0)
    banner_title_en = models.CharField(max_length=MAX_TITLE_LENGTH, blank=True)
    banner_title_zh = models.CharField(max_length=MAX_TITLE_LENGTH, blank=True)
    banner_text_en = models.TextField(blank=True)
    banner_text_zh = models.TextField(blank=True)
    banner_required = models.BooleanField(default=False)
    banner_version = models.IntegerField(default=0)
    updated_at = models.DateTimeField(null=True)
