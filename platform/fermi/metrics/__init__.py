"""What ranks say in numbers: readers of lines and of records, and one series from several sources. Pure."""
