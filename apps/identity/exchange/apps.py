from django.apps import AppConfig


class ExchangeConfig(AppConfig):
    name = "apps.identity.exchange"
    label = "exchange"
