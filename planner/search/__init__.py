"""The search for plans: spaces, bounds, the CP-SAT master, answers. Never imports ``db``."""
