"""Data files that ship with the planner, each row with its source, and the loaders that read them."""
