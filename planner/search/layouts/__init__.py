"""The best layers of every pipeline device, and how many of them run again: exact for what a framework can be told."""
