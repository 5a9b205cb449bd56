"""Django's PostgreSQL backend (`ENGINE`) with a circuit breaker: an outage is noticed once and not by each request."""
