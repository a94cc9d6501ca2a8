"""The program's other threads: captured with the main thread, started again in a new process.

    captured   the stacks of the other threads. Start reading here
    places     whether a stopped thread has done nothing since but end its wait
    contexts   the contexts that a thread has entered
    restart    threads begin again
    waking     the main thread is woken where it waits

Not here: which threads are the program's (:mod:`ckpt.capture.threads`), thread objects
(:mod:`ckpt.image.reducers.thread_objects`).
"""
