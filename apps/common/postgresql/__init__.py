"""PostgreSQL as Django knows it (`ENGINE`), whose absence is noticed once and not by each request anew."""
