"""Event loops of asyncio: the loop with its selector, timers and tasks; a coroutine that runs is on the captured stack.

    library       the class that serves asyncio
    event_loops   loops over a selector; tasks: futures and tasks in C; async_generators: their awaitables

Not here: sockets and selectors (:mod:`ckpt.image.ipc`), private structs (:mod:`ckpt.compat.asyncio_objects`).
"""
