"""Searches in processes of their own: the pool of workers, and the runner that feeds them from the store."""
