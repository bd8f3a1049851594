"""Jobs of schedulers around the program that a framework's target has of a plan."""
