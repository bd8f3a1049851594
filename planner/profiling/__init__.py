"""A trial: one plan run for a few steps, from the job to what was measured."""
