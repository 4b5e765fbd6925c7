"""Workers that a test plays: a connection that speaks EARW/1 and sends nothing by itself."""

import zmq


class HandWorker:
    """Worker at an endpoint, which has sent READY with these fields. `key`: (public key, secret key) for tcp."""

    def __init__(self, endpoint, *fields, line="READY EARW/1", key=None, server_key=None):
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = 0
        # Without another attempt libzmq would drop the unread messages of a connection that ends.
        self.socket.reconnect_ivl = 3_600_000
        if key:
            self.socket.curve_publickey, self.socket.curve_secretkey = key
            self.socket.curve_serverkey = server_key
        self.socket.connect(endpoint)
        self.send(line, *fields)

    def send(self, line, *fields, body=None):
        frames = ["\n".join([line, *fields, ""]).encode()]
        self.socket.send_multipart(frames if body is None else [*frames, body])

    def receive(self, timeout=60):
        """Returns the head of the next message; None after the timeout."""
        return self.socket.recv_multipart()[0].decode() if self.socket.poll(timeout * 1000) else None

    def expect(self, verb, operand=None):
        """Returns operands and fields of the next message with this verb, and this operand if given; others are skipped."""
        while (head := self.receive()) is not None:
            first, *lines = head.partition("\n\n")[0].splitlines()
            found, *operands = first.split(" ")
            if found == verb and (operand is None or operand in operands):
                return operands, dict(line.partition(": ")[::2] for line in lines)
        raise AssertionError(f"no {verb} in time")

    def close(self):
        self.socket.close()
