from django.urls import path

from apps.notices.api import views

CHANNEL = "notice-channels/<str:channel_id>"

urlpatterns = [
    path("inbox", views.InboxView.as_view()),
    path("inbox/read", views.InboxReadView.as_view()),
    path("notice-channels", views.ChannelsView.as_view()),
    path(CHANNEL, views.ChannelView.as_view()),
    path(f"{CHANNEL}/test", views.ChannelTestView.as_view()),
    path(f"{CHANNEL}/deliveries", views.ChannelDeliveriesView.as_view()),
    path("notice-kinds", views.KindsView.as_view()),
    path("notice-rules", views.RulesView.as_view()),
    path("notice-rules/<str:rule_id>", views.RuleView.as_view()),
]
