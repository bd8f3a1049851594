"""A plan as a page: its time, its memory, its pipeline, its place in the network, and what launches it."""
