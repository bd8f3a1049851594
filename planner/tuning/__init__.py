"""Which plan to run next, what was learned from those that ran, and when to stop; nothing is stored or started here."""
