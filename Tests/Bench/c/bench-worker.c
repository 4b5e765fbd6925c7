/* bench-worker FOLDER: worker of an Earshot bus, protocol EARW/1, for URLs such as bench:1. It answers each at
   once, so that the bus is the only cost. */
#define _GNU_SOURCE
#include "bare.h"

#include <string.h>
#include <unistd.h>

enum { SLOTS = 4096 };

int main(int count, char **arguments)
{
    if (count != 2) return fprintf(stderr, "usage: bench-worker FOLDER\n"), 64;
    static const char body[BARE_BODY_BYTES];
    char text[256];
    void *context = zmq_ctx_new(), *socket = bare_socket(context, ZMQ_DEALER);
    int size = snprintf(text, sizeof text, "READY EARW/1\nslots: %d\nschemes: bench\npid: %d\n", SLOTS, (int)getpid());
    if (bare_connect(socket, arguments[1], "work") != 0 || zmq_send(socket, text, (size_t)size, 0) < 0)
        return perror(arguments[1]), 73;
    for (;;) {
        zmq_msg_t frame;
        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, socket, 0) < 0) return perror("zmq_msg_recv"), 1;
        const char *head = zmq_msg_data(&frame), *end = head + zmq_msg_size(&frame);
        if (end - head > 4 && memcmp(head, "JOB ", 4) == 0) {
            const char *attempt = head + 4, *space = memchr(attempt, ' ', (size_t)(end - attempt));
            if (!space) return fprintf(stderr, "a JOB without a URL\n"), 1;
            size = snprintf(text, sizeof text, "DONE %.*s 200\nlength: %d\n", (int)(space - attempt), attempt,
                BARE_BODY_BYTES);
            zmq_send(socket, text, (size_t)size, ZMQ_SNDMORE);
            zmq_send(socket, body, sizeof body, 0);
        } else if (end - head >= 4 && memcmp(head, "PING", 4) == 0) {
            zmq_send(socket, "PONG\n", 5, 0);
        } else if (end - head >= 5 && memcmp(head, "LIMIT", 5) == 0) {
            printf("ready\n");
            fflush(stdout);
        } else if (end - head >= 5 && (memcmp(head, "DRAIN", 5) == 0 || memcmp(head, "ERROR", 5) == 0)) {
            return fwrite(head, 1, (size_t)(end - head), stderr), head[0] == 'E';
        }
        zmq_msg_close(&frame);
    }
}
