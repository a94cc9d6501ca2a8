from typing import Any

from ckpt.transport.driver._express import Express

class Lane:
    def __new__(
        cls, endpoint: Any, lock: Any, backlog_bytes: int, check_mask: int, express: Express | None = None
    ) -> Lane: ...
    def append(self, dst: int, message: bytes) -> bool: ...
    def send(self, dst: int, message: bytes) -> bool | None: ...

api: object
