"""Collective operations: builders of schedules of sends, receives and local steps."""
