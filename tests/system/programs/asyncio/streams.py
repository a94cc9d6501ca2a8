"""Servers over TCP and over a Unix socket, and their clients, in one event loop."""

import asyncio
import contextlib
import hashlib
import os
import sys
import tempfile

ROUNDS = 250 * int(sys.argv[1])
PATH = os.path.join(tempfile.mkdtemp(), "streams.sock")


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    number = 0
    while line := await reader.readline():
        number += 1
        writer.write(f"{number} {hashlib.md5(line).hexdigest()}\n".encode())
        await writer.drain()
    writer.close()


async def ask(name: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    total = hashlib.md5()
    for number in range(ROUNDS):
        writer.write(f"{name} {number} {sum(i * i for i in range(2_000))}\n".encode() * 3)
        for _ in range(3):
            total.update(await reader.readline())
        if name == 0 and number % 20 == 0:
            print(name, number, total.hexdigest(), flush=True)
        await asyncio.sleep(0.001)
    writer.close()
    await writer.wait_closed()
    return total.hexdigest()


async def listen() -> asyncio.Server:
    """At a port that the kernel gives to nobody: between a kill and the restart another process would get it."""
    for port in range(12_000 + id(serve) % 8_000, 32_000):
        try:
            return await asyncio.start_server(serve, "127.0.0.1", port)
        except OSError:
            continue
    raise RuntimeError("no port is free")


async def main() -> None:
    tcp, unix = await listen(), await asyncio.start_unix_server(serve, PATH)
    port = tcp.sockets[0].getsockname()[1]
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    connections += [await asyncio.open_unix_connection(PATH) for _ in range(2)]
    print(sorted(await asyncio.gather(*(ask(n, *each) for n, each in enumerate(connections)))))
    tcp.close()
    unix.close()
    print("the address is", "there" if os.path.exists(PATH) else "removed")  # by the loop, since Python 3.13


asyncio.run(main())
with contextlib.suppress(FileNotFoundError):
    os.unlink(PATH)
os.rmdir(os.path.dirname(PATH))
