"""The nouns of a scenario and of a plan, as frozen values, and the importers that build them from untyped data."""
