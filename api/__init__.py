"""What is served: the REST API under ``/v1`` and the dashboard (nothing lives here yet).

May import ``planner``, ``db`` and ``costmodel``; no other package imports ``api``.
"""
