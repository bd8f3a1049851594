"""The routes of ``/v1``, one file per noun, and what watches over the server."""
