"""What is decided: the search for plans and the command line that asks for them.

May import ``costmodel`` and ``db``; never ``api``.
"""
