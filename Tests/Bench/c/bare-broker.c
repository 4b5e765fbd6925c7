/* bare-broker FOLDER: minimal broker between one client and one worker: two ROUTERs that forward each message
   unchanged. The worker sends one empty message first, so that its routing ID is known. */
#include "bare.h"

#include <string.h>

enum { BURST = 256, LONGEST_ID = 256 };

static char worker[LONGEST_ID];
static size_t worker_size;

/* Forwards one message: to the worker with its ID in front, or to a client by the ID that the worker returned.
   Returns 0 if there is none. */
static int pass(void *from, void *to, int to_worker)
{
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, from, ZMQ_DONTWAIT) < 0) return 0;
    if (!to_worker) {
        size_t size = zmq_msg_size(&frame);
        if (size <= LONGEST_ID) memcpy(worker, zmq_msg_data(&frame), worker_size = size);
        zmq_msg_recv(&frame, from, 0); /* the client's ID, or the worker's greeting */
        if (!zmq_msg_more(&frame)) return zmq_msg_close(&frame), 1;
    } else {
        zmq_send(to, worker, worker_size, ZMQ_SNDMORE);
    }
    for (int more = 1; more;) {
        more = zmq_msg_more(&frame);
        zmq_msg_send(&frame, to, more ? ZMQ_SNDMORE : 0);
        zmq_msg_init(&frame);
        if (more) zmq_msg_recv(&frame, from, 0);
    }
    zmq_msg_close(&frame);
    return 1;
}

int main(int count, char **arguments)
{
    if (count != 2) return fprintf(stderr, "usage: bare-broker FOLDER\n"), 64;
    void *context = zmq_ctx_new();
    void *clients = bare_socket(context, ZMQ_ROUTER), *workers = bare_socket(context, ZMQ_ROUTER);
    if (bare_bind(clients, arguments[1], "client") != 0 || bare_bind(workers, arguments[1], "worker") != 0)
        return perror(arguments[1]), 73;
    zmq_pollitem_t items[] = {{.socket = workers, .events = ZMQ_POLLIN}, {.socket = clients, .events = ZMQ_POLLIN}};
    for (;;) {
        zmq_poll(items, worker_size ? 2 : 1, -1);
        if (items[0].revents)
            for (int i = 0; i < BURST && pass(workers, clients, 0); i++) continue;
        if (worker_size && items[1].revents)
            for (int i = 0; i < BURST && pass(clients, workers, 1); i++) continue;
    }
}
