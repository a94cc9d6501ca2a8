"""The state machines of the transport: links, windows, credit, frames. Pure: events and time in, actions out."""
