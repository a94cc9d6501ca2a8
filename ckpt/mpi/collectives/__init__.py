"""Collective operations as schedules of sends, receives and local steps."""
