"""Changes of purses and proposals."""
