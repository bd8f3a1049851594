"""Pages for people, rendered here: a package for each of them. Nothing but zooming needs JavaScript.

Every page has a JSON twin: the same path with ``.json``, or ``Accept: application/json``. It is the API's own answer
where the API has one.
"""
