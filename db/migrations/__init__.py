"""Migrations of the schema, in the wheel: ``versions`` holds one file per revision."""
