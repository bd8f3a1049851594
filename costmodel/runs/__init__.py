"""Runs that somebody did: the file that lists them, and what the cost model says of each."""
