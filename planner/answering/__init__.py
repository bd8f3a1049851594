"""The whole answer to a question, from one search or from several."""
