from os import PathLike

def look(
    path: str | bytes | PathLike[str], /
) -> tuple[int, int, int, int, int, int, int, int, int] | None: ...
