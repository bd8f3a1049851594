"""What a plan costs: pure functions on arrays.

The leaf of the four packages: it imports the standard library, numpy, pydantic and pyyaml, and nothing else of ours.
"""
