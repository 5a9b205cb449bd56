from django.urls import path

from apps.audit_stream.api import views

urlpatterns = [path("audit-stream", views.AuditStreamView.as_view())]
