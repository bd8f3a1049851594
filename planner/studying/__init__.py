"""Studies in the store: opened, prepared, run by any number of workers. Tuning, profiling and the store meet here."""
