"""Endpoints of the pages on which people grant programs access, and of the list of what they have granted."""
