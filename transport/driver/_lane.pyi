from typing import Any

class Lane:
    def __new__(cls, endpoint: Any, lock: Any, backlog_bytes: int, check_mask: int) -> Lane: ...
    def append(self, dst: int, message: bytes) -> bool: ...

api: object
