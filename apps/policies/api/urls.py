from django.urls import path

from apps.policies.api import views

urlpatterns = [
    path("sign-in-policy", views.SignInPolicyView.as_view()),
    path("auth/banner", views.BannerView.as_view()),
    path("auth/banner/accept", views.BannerAcceptView.as_view()),
]
