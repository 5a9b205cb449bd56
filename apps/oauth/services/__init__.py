"""Rules of grants: what a program may request, what a person may grant, which tokens come of it."""
