"""Server of pictures on 127.0.0.1: `/picture/N` is a PNG of 64 × 48 pixels in a colour of its own."""

import colorsys
import http.server
import struct
import threading
import urllib.parse
import zlib

WIDTH, HEIGHT = 64, 48


def png(number):
    """Returns a PNG with a gradient."""
    lines = []
    for y in range(HEIGHT):
        colour = colorsys.hsv_to_rgb(number * 0.381966 % 1, 0.55, 0.95 - 0.5 * y / HEIGHT)
        lines.append(b"\0" + bytes(round(255 * part) for part in colour) * WIDTH)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    size = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    chunks = chunk(b"IHDR", size), chunk(b"IDAT", zlib.compress(b"".join(lines))), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name = urllib.parse.urlsplit(self.path).path.rpartition("/")[2]
        data = png(int(name)) if name.isdecimal() else b""
        self.send_response(200 if data else 404)
        self.send_header("Content-Type", "image/png" if data else "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # The bus has closed the connection of a dropped request.


class Pictures:
    """Running server: `with Pictures() as pictures:`."""

    def __enter__(self):
        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
