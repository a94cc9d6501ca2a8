"""A small HTTP server in a thread; the main thread asks it, and keeps some of its answers in a pipe."""

import http.server
import os
import sys
import threading
import urllib.request

ROUNDS = 60 * int(sys.argv[1])
hits = 0


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        global hits
        hits += 1
        body = f"{self.path} {hits} {sum(i * i for i in range(20_000))}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def listen() -> http.server.ThreadingHTTPServer:
    """At a port that the kernel gives to nobody: between a kill and the restart another process would get it."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        try:
            return http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError:
            continue
    raise RuntimeError("no port is free")


server = listen()
threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
reading, writing = os.pipe()
source, sink = os.fdopen(reading), os.fdopen(writing, "w")
for number in range(ROUNDS):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}/{number}") as answer:
        print(answer.read().decode(), file=sink, flush=True)
    del answer
    if number % 3 == 2:
        print(source.readline(), source.readline(), sum(i * i for i in range(100_000)), flush=True)
sink.close()
print(source.read(), hits)
server.shutdown()
