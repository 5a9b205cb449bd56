"""The API of agents' tokens, of proposals and of undoing."""
