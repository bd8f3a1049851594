"""Studies: series of real runs as they come, predicted beside measured."""
