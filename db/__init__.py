"""What is remembered: searches, plans, studies and measurements in SQLite or PostgreSQL (nothing lives here yet).

May import ``costmodel``; never ``planner`` or ``api``.
"""
