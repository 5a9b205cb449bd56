"""Sign-in by OpenID Connect: allauth's flow, with the checks that it leaves to TLS and to the application."""
