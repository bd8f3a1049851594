"""Plans side by side: what differs, what that costs, and why one is faster than another."""
