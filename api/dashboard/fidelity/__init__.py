"""How right predictions are: the shipped measured runs, this store's own measurements, and calibrations."""
