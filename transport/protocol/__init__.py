"""The state machines of the transport: links, windows, credit, frames.

Pure: each module takes frames and the time as arguments and returns frames, messages and events. None of them reads a
clock, opens a socket or starts a thread.
"""
