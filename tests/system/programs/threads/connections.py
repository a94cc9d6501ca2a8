"""A server over TCP with a thread for each connection; its clients are in the same program, and keep their connections."""

import hashlib
import socket
import sys
import threading

ROUNDS = 400 * int(sys.argv[1])
CLIENTS = 3


def serve() -> None:
    while True:
        connection, address = server.accept()
        threading.Thread(target=answer, args=(connection, address), daemon=True).start()


def answer(connection: socket.socket, address: object) -> None:
    taken = 0
    while data := connection.recv(4096):
        taken += len(data)
        assert connection.getpeername() == address
        connection.sendall(hashlib.sha256(data + str(taken).encode()).hexdigest().encode())
    connection.close()


def read(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = client.recv(size - len(found))
        assert data
        found += data
    return found


def listening() -> socket.socket:
    """At a port that the kernel gives to nobody: between a kill and the restart another process would get it."""
    for port in range(12_000 + id(serve) % 8_000, 32_000):
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError:
            continue
    raise RuntimeError("no port is free")


server = listening()
threading.Thread(target=serve, daemon=True).start()
clients = [socket.create_connection(server.getsockname(), timeout=[None, 60][n % 2]) for n in range(CLIENTS)]
total = hashlib.sha256()
for number in range(ROUNDS):
    for client in clients:
        client.sendall(f"{number} {sum(i * i for i in range(500))}".encode())
    for client in clients:
        total.update(read(client, 64))
    if number % 20 == 0:
        print(number, total.hexdigest(), flush=True)
for client in clients:
    client.close()
print(total.hexdigest())
