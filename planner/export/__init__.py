"""From a plan to what a framework or a scheduler reads, and back. Pure functions: nothing here runs or stores anything.

A target is a package of its own with ``write.py`` (plan -> files), ``read.py`` (files -> the plan's fields, where that
makes sense) and ``words.yaml`` (every flag or key, with the versions that have it and where that was read).
"""
