"""What ranks print and report: read by the watcher, stored as metrics, served as pages of lines."""
