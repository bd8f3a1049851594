"""Between the nouns of the cost model and the records of the store: identities, and both ways of translation."""
