/* Requests from zurl over its request interface (README of zurl, "Sockets": a DEALER multiplexes, requests have an
   ID), in TNetStrings, which carry bodies unchanged. SERVER is the endpoint `in_req_spec`. */
#define _GNU_SOURCE
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

/* Content and type of a TNetString. */
typedef struct {
    const char *data;
    size_t size;
    char type;
} element;

/* Removes a TNetString from the front of `text`; 0 if there is none. */
static int take(const char **text, const char *end, element *found)
{
    size_t size = 0;
    const char *at = *text;
    for (; at < end && *at >= '0' && *at <= '9'; at++) size = size * 10 + (size_t)(*at - '0');
    if (at == end || *at != ':' || (size_t)(end - at) < size + 2) return 0;
    *found = (element){at + 1, size, at[1 + size]};
    *text = at + 1 + size + 1;
    return 1;
}

static int is(const element *key, const char *name)
{
    return key->size == strlen(name) && memcmp(key->data, name, key->size) == 0;
}

/* Reads a response. */
static int answer(load_client *client, const char *text, size_t size)
{
    const char *end = text + size;
    element map, key, value, body = {0}, code = {0}, id = {0};
    if (size == 0 || *text++ != 'T' || !take(&text, end, &map)) return fprintf(stderr, "not an answer\n"), -1;
    for (const char *at = map.data; take(&at, map.data + map.size, &key) && take(&at, map.data + map.size, &value);) {
        if (is(&key, "id")) id = value;
        else if (is(&key, "code")) code = value;
        else if (is(&key, "body")) body = value;
    }
    if (!id.data || !code.data || atoi(code.data) != 200)
        return fprintf(stderr, "zurl: %.*s\n", (int)size - 1, end - size + 1), -1;
    return load_answered(client, atol(id.data), body.data, body.size);
}

static int client(load_client *client)
{
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    int none = 0;
    zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &none, sizeof none);
    if (zmq_connect(socket, client->server) != 0) return perror(client->server), 1;
    char url[LOAD_URL_BYTES], id[24], fields[LOAD_URL_BYTES + 100], request[LOAD_URL_BYTES + 120];
    load_ready(client);
    while (client->answered < client->requests) {
        for (long number; (number = load_next(client, url)) >= 0;) {
            int length = snprintf(id, sizeof id, "%ld", number);
            int inner = snprintf(fields, sizeof fields, "2:id,%d:%s,6:method,3:GET,3:uri,%zu:%s,", length, id,
                strlen(url), url);
            int size = snprintf(request, sizeof request, "T%d:%s}", inner, fields);
            /* Empty delimiter frame, as a REQ socket sends. */
            if (zmq_send(socket, "", 0, ZMQ_SNDMORE) != 0 || zmq_send(socket, request, (size_t)size, 0) < 0)
                return perror("zmq_send"), 1;
        }
        zmq_msg_t frame;
        zmq_msg_init(&frame);
        do {
            if (zmq_msg_recv(&frame, socket, 0) < 0) return perror("zmq_msg_recv"), 1;
        } while (zmq_msg_more(&frame));
        if (answer(client, zmq_msg_data(&frame), zmq_msg_size(&frame)) != 0) return 1;
        zmq_msg_close(&frame);
    }
    zmq_close(socket);
    zmq_ctx_term(context);
    return 0;
}

int main(int count, char **arguments)
{
    return load_main(count, arguments, client);
}
