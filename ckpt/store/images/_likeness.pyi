from ckpt.store.disk.fsio import Buffer

KEY_BYTES: int
IMPLEMENTATIONS: str

def sums(data: Buffer, key: Buffer, implementation: str = ..., /) -> bytes: ...
