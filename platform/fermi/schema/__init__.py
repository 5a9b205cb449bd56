"""Values that cross borders: their JSON form, cleaning of foreign text, suggestions for typing errors. Pure."""
