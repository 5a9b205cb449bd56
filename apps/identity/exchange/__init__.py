"""Exchange of a pipeline's ID token for a short API token of a service account (RFC 8693), by rules of its project."""
