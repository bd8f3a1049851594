"""What is remembered: searches, plans, studies and measurements in SQLite or PostgreSQL.

``db.store.Store`` is the way in. May import ``costmodel``; never ``planner`` or ``api``.
"""
