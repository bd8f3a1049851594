"""Calibration: the parameters of the cost model as data, and later the fit that makes them."""
