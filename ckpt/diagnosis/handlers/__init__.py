"""Handlers: one small module for each way to learn a value of a device."""
