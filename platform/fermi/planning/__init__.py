"""From a request for a task to a validated plan: recommendations, templates, sizes, and what they need. Pure."""
