from django.apps import AppConfig


class ProxyConfig(AppConfig):
    name = "apps.proxy"
    label = "doors"  # the tables' prefix since before the app had this name
