"""Pages for people, rendered here: the searches, one search, and the form to ask. Nothing in them needs JavaScript.

Every page has a JSON twin, the API's own answer: the same path with ``.json``, or ``Accept: application/json``.
"""
