"""What needs torch to train: the model, the ways to cut it, and the loop."""
