"""Pools of processes: saved with the work that is open; a new process starts workers anew and gives them that work again.

    executors       ``concurrent.futures.ProcessPoolExecutor``
    process_pools   ``multiprocessing.Pool``; recording: keeps its open tasks
    managers        ``multiprocessing.Manager`` and its proxies: refused while it runs
    plumbing        the pipes, queues and locks that belong to a pool

Not here: pools of joblib (:mod:`ckpt.image.joblib`), child processes of other kinds (:mod:`ckpt.image.stdlib.processes`).
"""
