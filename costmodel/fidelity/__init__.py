"""How right predictions are on runs that were measured: errors, ranking, memory, and what a simple rule would reach."""
