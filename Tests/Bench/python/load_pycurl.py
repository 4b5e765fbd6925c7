"""Requests from the origin by pycurl's multi interface in the client's process, with kept handles, after its example
retriever-multi.py."""

import io

import load
import pycurl


def begin(multi, handle, client):
    request = client.next()
    if request is None:
        return
    handle.body = io.BytesIO()
    handle.requested = request[1]
    handle.setopt(pycurl.URL, request[0])
    handle.setopt(pycurl.WRITEDATA, handle.body)
    multi.add_handle(handle)


def run(client):
    multi = pycurl.CurlMulti()
    handles = []
    for _ in range(client.plan.outstanding):
        handle = pycurl.Curl()
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.FAILONERROR, 1)
        handles.append(handle)
    client.ready()
    for handle in handles:
        begin(multi, handle, client)
    while client.answered < client.plan.requests:
        while multi.perform()[0] == pycurl.E_CALL_MULTI_PERFORM:
            pass
        while True:
            left, done, failed = multi.info_read()
            for handle, _, text in failed:
                raise SystemExit(text)
            for handle in done:
                multi.remove_handle(handle)
                client.record(handle.requested, handle.body.getvalue())
                begin(multi, handle, client)
            if not left:
                break
        if client.answered < client.plan.requests and not done:
            multi.select(1.0)


load.main(run)
