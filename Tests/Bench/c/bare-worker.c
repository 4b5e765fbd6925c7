/* bare-worker FOLDER: returns each message at once with the same frames, the last one as the body. */
#include "bare.h"

int main(int count, char **arguments)
{
    if (count != 2) return fprintf(stderr, "usage: bare-worker FOLDER\n"), 64;
    static const char body[BARE_BODY_BYTES];
    void *context = zmq_ctx_new(), *socket = bare_socket(context, ZMQ_DEALER);
    if (bare_connect(socket, arguments[1], "worker") != 0 || zmq_send(socket, "", 0, 0) < 0)
        return perror(arguments[1]), 73;
    for (;;) {
        zmq_msg_t frame;
        zmq_msg_init(&frame);
        for (int more = 1; more;) {
            if (zmq_msg_recv(&frame, socket, 0) < 0) return perror("zmq_msg_recv"), 1;
            more = zmq_msg_more(&frame);
            if (more) zmq_msg_send(&frame, socket, ZMQ_SNDMORE);
            else zmq_send(socket, body, sizeof body, 0);
        }
        zmq_msg_close(&frame);
    }
}
