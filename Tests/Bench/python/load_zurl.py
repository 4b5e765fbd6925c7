"""Requests from zurl over its request interface in TNetStrings, as load-zurl.c does: SERVER is the endpoint
`in_req_spec`."""

import load
import zmq


def element(text, at):
    """Returns the content of the TNetString at `at`, and its end."""
    colon = text.index(b":", at)
    size = int(text[at:colon])
    return text[colon + 1:colon + 1 + size], colon + 2 + size


def fields(text):
    content, _ = element(text, 1)
    found, at = {}, 0
    while at < len(content):
        key, at = element(content, at)
        found[key], at = element(content, at)
    return found


def run(client):
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.set_hwm(0)
    socket.connect(client.plan.server)
    client.ready()
    requested = {}
    while client.answered < client.plan.requests:
        while len(requested) < client.plan.outstanding and (request := client.next()):
            number, url = str(client.requested), request[0]
            requested[number.encode()] = request[1]
            inner = f"2:id,{len(number)}:{number},6:method,3:GET,3:uri,{len(url)}:{url},"
            socket.send_multipart([b"", f"T{len(inner)}:{inner}}}".encode()])
        answer = fields(socket.recv_multipart()[-1])
        if answer.get(b"code") != b"200":
            raise SystemExit(f"zurl: {answer}")
        client.record(requested.pop(answer[b"id"]), answer[b"body"])
    socket.close(0)


load.main(run)
