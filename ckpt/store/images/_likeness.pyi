from ckpt.store.disk.fsio import Buffer

KEY_BYTES: int
WAYS: str

def sums(data: Buffer, key: Buffer, way: str = ..., /) -> bytes: ...
