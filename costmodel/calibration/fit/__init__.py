"""From measured runs to a calibration: priors, the tree of rows that a fit may move, and the solver."""
