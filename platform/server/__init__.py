"""The Django project (settings, URLs, Celery, ASGI) and `server.up`, the embedded platform."""
