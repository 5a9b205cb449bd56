"""Runs as a table: the fields that tasks are filtered, sorted and compared by, and the language of queries. Pure."""
