"""Messages on their way out of the platform."""
