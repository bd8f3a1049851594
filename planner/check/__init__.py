"""Judging a plan that exists already: legal or not, fitting or not, what it takes, and what would be better."""
