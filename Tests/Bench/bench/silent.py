"""Origin that accepts connections and requests, and never answers: silent.py PORT."""

import resource
import selectors
import socket
import sys


def main(port):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    selector = selectors.DefaultSelector()
    with socket.create_server(("127.0.0.1", port), backlog=4096) as server:
        server.setblocking(False)
        selector.register(server, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is server:
                    try:
                        connection, _ = server.accept()
                    except BlockingIOError:
                        continue
                    connection.setblocking(False)
                    selector.register(connection, selectors.EVENT_READ)
                elif not read(key.fileobj):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


def read(connection):
    """Whether the connection is open."""
    try:
        return bool(connection.recv(65_536))
    except BlockingIOError:
        return True
    except OSError:
        return False


if __name__ == "__main__":
    main(int(sys.argv[1]))
