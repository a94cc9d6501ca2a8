"""Event loops of asyncio: the loop with its selector, timers and tasks; what runs in it is on the stack like all else."""
