"""torch beside its tensors (:mod:`ckpt.image.libraries.tensors`): settings, moments to avoid, loaders of data."""
