"""Training scripts to run and to copy; see README.md."""
