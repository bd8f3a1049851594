"""A picture of one step: what every pipeline device does when, for Perfetto and chrome://tracing."""
