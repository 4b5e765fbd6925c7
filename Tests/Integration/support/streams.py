"""HTTP/2 origin over TLS whose streams end as the test requires; Debian's `python3-h2` implements the protocol.

The path names the end: `/NAME` or `/NAME/CODE`, where CODE is a number of RFC 9113, section 7. Each function below takes the
connection and the stream's number, and writes frames; those of one call are sent together. Every response is `CONTENT`, or the
first half of it.
"""

import contextlib
import gzip
import threading

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import hyperframe.frame as frames

from .faults import body
from .script import ScriptedOrigin

CONTENT = body(20_000, "stream")
HALF = CONTENT[:10_000]
TEXT = b"".join(b"line %d of a long text\n" % number for number in range(300_000))
ENCODED = gzip.compress(TEXT, 1)


class StreamConnection:
    """One connection of the origin."""

    def __init__(self, connection, origin):
        self._connection = connection
        self.origin = origin
        self.number = connection.number
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8",
                                              validate_outbound_headers=False)
        self._h2 = h2.connection.H2Connection(config)
        self.is_open = True
        self._pending = {}

    def serve(self):
        self._h2.initiate_connection()
        for name, value in self.origin.settings.items():
            self._h2.update_settings({name: value})
        self.flush()
        if self.origin.leaves_at_once and self.number == 1:
            self.goodbye(0)
            self.close(notifies=True)
        while self.is_open and (data := self._receive()):
            try:
                events = self._h2.receive_data(data)
            except h2.exceptions.ProtocolError:
                # Frames of a stream that this origin has ended manually.
                events = []
            for event in events:
                if isinstance(event, h2.events.RequestReceived):
                    headers = dict(event.headers)
                    self.origin.note(self.number, headers[":path"], self._h2.open_inbound_streams)
                    self.answer(event.stream_id, headers[":path"])
                elif isinstance(event, h2.events.StreamReset):
                    self.origin.note_reset(event.error_code)
            if self.is_open:
                self._push()
                self.flush()
        if self.is_open:
            self.origin.note_closed(self.number)

    def _receive(self):
        try:
            return self._connection.stream.recv(65536)
        except OSError:
            return b""

    def answer(self, stream, path):
        _, name, *operands = path.partition("?")[0].split("/")
        ENDINGS[name](self, stream, *operands[:1])
        if self.is_open:
            self.flush()

    def flush(self):
        if data := self._h2.data_to_send():
            with contextlib.suppress(OSError):
                self._connection.stream.sendall(data)

    # Functions that write an ending.

    def head(self, stream, *fields, status="200", ends=False):
        self._h2.send_headers(stream, [(":status", status), *fields], end_stream=ends)

    def frame(self, frame, *flags):
        """Sends a frame without the library's checks."""
        for flag in flags:
            frame.flags.add(flag)
        pending = self._h2.data_to_send()
        with contextlib.suppress(OSError):
            self._connection.stream.sendall(pending + frame.serialize())

    def data(self, stream, content, ends=False):
        for start in range(0, max(len(content), 1), 16_000):
            piece = content[start:start + 16_000]
            self._h2.send_data(stream, piece, end_stream=ends and start + 16_000 >= len(content))
        self.flush()

    def data_in_turn(self, stream, content):
        """Sends the whole body within the client's windows."""
        self._pending[stream] = content

    def _push(self):
        for stream, content in list(self._pending.items()):
            while room := min(len(content), self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size):
                self._h2.send_data(stream, content[:room], end_stream=room == len(content))
                content = content[room:]
            self._pending[stream] = content
            if not content:
                del self._pending[stream]

    def reset(self, stream, code):
        try:
            self._h2.reset_stream(stream, int(code))
            self.flush()
        except h2.exceptions.ProtocolError:
            # The stream has ended.
            self.frame(frames.RstStreamFrame(stream, error_code=int(code)))

    def goodbye(self, last, code=0):
        self.frame(frames.GoAwayFrame(0, last_stream_id=last, error_code=int(code)))

    def trailers(self, stream):
        self._h2.send_headers(stream, [("x-sum", "1")], end_stream=True)
        self.flush()

    def send(self, pieces):
        """Sends bytes without the library."""
        self._connection.stream.sendall(pieces)

    def close(self, notifies=False):
        self.flush()
        if notifies:
            self._connection.close_tls()
        self._connection.stream.close()
        self.is_open = False


LENGTH = ("content-length", str(len(CONTENT)))


def whole(connection, stream, *_):
    connection.head(stream, LENGTH)
    connection.data(stream, CONTENT, ends=True)


def unannounced(connection, stream, *_):
    connection.head(stream)
    connection.data(stream, CONTENT, ends=True)


def empty_end(connection, stream, *_):
    connection.head(stream)
    connection.data(stream, CONTENT)
    connection.data(stream, b"", ends=True)


def gzipped(connection, stream, *_):
    """`TEXT`, encoded; more than a client decodes at once."""
    connection.head(stream, ("content-encoding", "gzip"))
    connection.data_in_turn(stream, ENCODED)


def whole_then_frames(connection, stream, *_):
    """Frames without a stream follow."""
    whole(connection, stream)
    connection.frame(frames.PingFrame(0, opaque_data=b"12345678"))
    connection.frame(frames.SettingsFrame(0, settings={3: 90}))
    connection.frame(frames.WindowUpdateFrame(0, window_increment=1_000))


def whole_then_goodbye(connection, stream, *_):
    """A GOAWAY follows, and the connection stays open."""
    whole(connection, stream)
    connection.goodbye(stream)


def broken_once(connection, stream, *_):
    if connection.origin.is_first("broken-once"):
        connection.head(stream, status="500", ends=True)
    else:
        whole(connection, stream)


def broken_body_once(connection, stream, *_):
    if connection.origin.is_first("broken-body-once"):
        reset_in_body(connection, stream, 2)
    else:
        whole(connection, stream)


def trailers(connection, stream, *_):
    connection.head(stream)
    connection.data(stream, CONTENT)
    connection.trailers(stream)


def interim(connection, stream, *_):
    connection.head(stream, ("link", "</a>"), status="103")
    unannounced(connection, stream)


def padded(connection, stream, *_):
    connection.head(stream)
    connection.frame(frames.DataFrame(stream, HALF, pad_length=200), "PADDED")
    connection.frame(frames.DataFrame(stream, CONTENT[len(HALF):], pad_length=7), "PADDED", "END_STREAM")


def nothing(connection, stream, *_):
    connection.head(stream, status="204", ends=True)


def end_then_reset(connection, stream, code):
    unannounced(connection, stream)
    connection.reset(stream, code)


def length_then_reset(connection, stream, code):
    connection.head(stream, LENGTH)
    connection.data(stream, CONTENT)
    connection.reset(stream, code)


def reset_first(connection, stream, code):
    connection.reset(stream, code)


def reset_once(connection, stream, code):
    if connection.origin.is_first("reset-once"):
        connection.reset(stream, code)
    else:
        whole(connection, stream)


def reset_after_head(connection, stream, code):
    connection.head(stream)
    connection.reset(stream, code)


def reset_in_body(connection, stream, code):
    connection.head(stream)
    connection.data(stream, HALF)
    connection.reset(stream, code)


def reset_in_announced_body(connection, stream, code):
    connection.head(stream, LENGTH)
    connection.data(stream, HALF)
    connection.reset(stream, code)


def reset_at_its_end(connection, stream, code):
    """All bytes, but no END_STREAM."""
    connection.head(stream)
    connection.data(stream, CONTENT)
    connection.reset(stream, code)


def reset_and_close(connection, stream, code):
    reset_in_body(connection, stream, code)
    connection.close()


def goodbye_then_end(connection, stream, *_):
    connection.head(stream)
    connection.data(stream, HALF)
    connection.goodbye(stream)
    connection.data(stream, CONTENT[len(HALF):], ends=True)


def goodbye_and_close(connection, stream, code):
    connection.head(stream)
    connection.data(stream, HALF)
    connection.goodbye(stream, code)
    connection.close(notifies=True)


def goodbye_and_reset(connection, stream, code):
    connection.head(stream)
    connection.data(stream, HALF)
    connection.goodbye(stream)
    connection.reset(stream, code)
    connection.close(notifies=True)


def unprocessed(connection, stream, *_):
    """The first connection processes no further request."""
    if connection.origin.is_first("unprocessed"):
        connection.goodbye(stream - 2 if stream > 1 else 0)
        connection.close(notifies=True)
    else:
        whole(connection, stream)


def cut(connection, stream, *_):
    connection.head(stream)
    connection.data(stream, HALF)
    connection.close()


def cut_with_notice(connection, stream, *_):
    connection.head(stream)
    connection.data(stream, HALF)
    connection.close(notifies=True)


def too_short(connection, stream, *_):
    connection.head(stream, LENGTH)
    connection.data(stream, HALF, ends=True)


def too_long(connection, stream, *_):
    connection.head(stream, ("content-length", str(len(HALF))))
    connection.data(stream, CONTENT, ends=True)


def header_bomb(connection, stream, *_):
    """A field of 4,000 bytes from the header table, repeated: small on the wire."""
    connection.head(stream, *[("x-large", "a" * 4_000)] * 3_000, ends=True)


def silent(connection, stream, *_):
    connection.head(stream)
    connection.data(stream, HALF)


def flood(connection, stream, kind):
    """The same frame repeatedly, until the client closes the connection."""
    connection.head(stream)
    frame = {"ping": frames.PingFrame(0, opaque_data=b"12345678"), "settings": frames.SettingsFrame(0, settings={3: 90}),
             "window": frames.WindowUpdateFrame(stream, window_increment=1), "reset": frames.RstStreamFrame(stream, error_code=0),
             "data": frames.DataFrame(stream), "continuation": frames.ContinuationFrame(stream)}[kind]
    connection.flush()
    if kind == "continuation":
        connection.frame(frames.HeadersFrame(stream))
    pieces = frame.serialize() * 500
    with contextlib.suppress(OSError):
        while True:
            connection.origin.note_flood(kind)
            connection.send(pieces)
    connection.close()


ENDINGS = {name.replace("_", "-"): function for name, function in list(globals().items())
           if callable(function) and getattr(function, "__module__", "") == __name__ and name[0].islower() and name != "body"}


class StreamOrigin(ScriptedOrigin):
    """`with StreamOrigin(certificate) as origin:`. `settings`: numbers of RFC 9113, section 6.5.2, and their values."""

    def __init__(self, certificate, settings=None, protocols=("h2", "http/1.1"), leaves_at_once=False):
        """`leaves_at_once`: whether the first connection sends GOAWAY before any request."""
        super().__init__(self._answer, certificate, protocols)
        self.protocols = protocols
        self.leaves_at_once = leaves_at_once
        self.settings = settings or {}
        self._changed = threading.Condition()
        self.requested = []
        """Paths in order, each with the number of its connection; 0 for HTTP/1.1."""
        self.resets = []
        """Codes with which the client reset streams."""
        self.most_streams = 0
        """Maximum number of concurrent streams of a connection."""
        self.floods = {}
        """Number of frames sent, by kind of flood."""
        self.closed = []
        """Numbers of the connections that the client closed."""
        self._seen = set()

    def note(self, connection, path, streams=0):
        with self._changed:
            self.requested.append((connection, path))
            self.most_streams = max(self.most_streams, streams)
            self._changed.notify_all()

    def note_reset(self, code):
        with self._changed:
            self.resets.append(code)
            self._changed.notify_all()

    def note_flood(self, kind):
        with self._changed:
            self.floods[kind] = self.floods.get(kind, 0) + 1
            self._changed.notify_all()

    def note_closed(self, connection):
        with self._changed:
            self.closed.append(connection)
            self._changed.notify_all()

    def is_first(self, name):
        with self._changed:
            is_first = name not in self._seen
            self._seen.add(name)
            return is_first

    def wait(self, condition, timeout=60):
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def _answer(self, connection):
        if connection.stream.selected_alpn_protocol() == "h2":
            StreamConnection(connection, self).serve()
            return
        if "http/1.1" not in self.protocols:
            return
        while path := connection.request():
            self.note(0, path)
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(CONTENT), CONTENT))
