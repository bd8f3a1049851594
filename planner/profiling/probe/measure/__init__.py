"""Kernels and collectives measured alone, on all ranks at once, as plans meet them."""
