/* Requests from the minimal broker, bare-broker. PLACE is the folder of its sockets, EXTRA the number of frames of
   a message. */
#define _GNU_SOURCE
#include "ask.h"
#include "bare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int client(ask_client *client)
{
    int frames = atoi(client->extra);
    void *context = zmq_ctx_new(), *socket = bare_socket(context, ZMQ_DEALER);
    if (frames < 2 || bare_connect(socket, client->place, "client") != 0) return perror(client->place), 1;
    char url[ASK_URL_BYTES], head[ASK_URL_BYTES + 64];
    ask_ready(client);
    while (client->answered < client->requests) {
        for (long number; (number = ask_next(client, url)) >= 0;) {
            /* The number and the URL come first; the other frames are empty. */
            int size = snprintf(head, sizeof head, "%ld %s", number, url);
            for (int i = 0; i < frames; i++)
                if (zmq_send(socket, head, i == 0 ? (size_t)size : 0, i + 1 < frames ? ZMQ_SNDMORE : 0) < 0)
                    return perror("zmq_send"), 1;
        }
        zmq_msg_t frame;
        zmq_msg_init(&frame);
        long number = -1;
        for (int more = 1, first = 1; more; first = 0) {
            if (zmq_msg_recv(&frame, socket, 0) < 0) return perror("zmq_msg_recv"), 1;
            if (first) number = strtol(zmq_msg_data(&frame), NULL, 10);
            more = zmq_msg_more(&frame);
        }
        if (ask_answered(client, number, zmq_msg_data(&frame), zmq_msg_size(&frame)) != 0) return 1;
        zmq_msg_close(&frame);
    }
    zmq_close(socket);
    zmq_ctx_term(context);
    return 0;
}

int main(int count, char **arguments)
{
    return ask_main(count, arguments, client);
}
