"""Searches: the list with the form to ask, and one search with its answer."""
