"""torch beside its tensors (:mod:`ckpt.image.libraries.tensors`): settings, moments to avoid, loaders of data.

    library                     the class that serves torch; settings: those that are in C++
    loaders, orders, workers,   ``DataLoader`` with worker processes
    shared_memory
    cuda, host_memory,          memory of GPUs, copied before the fork; generators, streams and events on them
    generators, devices
    gpu_arrays, triton          what other libraries have on GPUs; jax_state: what jax has in C++ beside its arrays
    distributed                 ``torch.distributed``: no image while there is a process group

Not here: tensors and graphs of gradients (:mod:`ckpt.image.libraries.tensors`, :mod:`ckpt.image.libraries.autograd`).
"""
