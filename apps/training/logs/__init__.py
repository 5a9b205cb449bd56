"""Output of ranks: read by the watcher, stored as metrics, served as pages of lines."""
