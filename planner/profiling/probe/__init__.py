"""A small PyTorch trainer that really cuts a scenario's transformer as a plan says, and measures kernels and links.

Nothing here imports torch but ``trainer`` and ``measure``, and those only run in the probe's own processes.
"""
