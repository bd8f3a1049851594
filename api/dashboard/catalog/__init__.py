"""The catalog for people: models, accelerators, clusters and frameworks, with their facts and sources."""
