from django.urls import path

from apps.templates.api import schedules, templates

TEMPLATE, SCHEDULE = "saved-templates/<str:template_id>", "schedules/<str:schedule_id>"

urlpatterns = [
    path("saved-templates", templates.SavedTemplatesView.as_view()),
    path(TEMPLATE, templates.SavedTemplateView.as_view()),
    path(f"{TEMPLATE}/tasks", templates.SavedTemplateTasksView.as_view()),
    path(f"{TEMPLATE}/preview", templates.SavedTemplatePreviewView.as_view()),
    path("schedules", schedules.SchedulesView.as_view()),
    path("schedules/moments", schedules.ScheduleMomentsView.as_view()),
    path(SCHEDULE, schedules.ScheduleView.as_view()),
    path(f"{SCHEDULE}/runs", schedules.ScheduleRunsView.as_view()),
]
