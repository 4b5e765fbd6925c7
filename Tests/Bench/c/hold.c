/* hold transfers COUNT URL: requests URL?0, URL?1 …, from a silent server, and waits.
   hold clients COUNT: opens this many connections that send HELLO, and waits.
   Prints `ready` when the broker has taken all. Ends by a signal. */
#define _DEFAULT_SOURCE
#include "earshot.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void wait_for_ever(void)
{
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}

static int transfers(int count, const char *url)
{
    earshot_bus bus;
    earshot_message message;
    if (earshot_open(&bus) != 0) return earshot_give_up(&bus);
    for (int i = 0; i < count; i++) {
        char request[20], asked[300];
        snprintf(request, sizeof request, "%d", i);
        snprintf(asked, sizeof asked, "%s?%d", url, i);
        if (earshot_fetch(&bus, "hold", request, asked, "timeout: 86400\n") != 0) return earshot_give_up(&bus);
    }
    /* Its answer shows that the broker has taken all. */
    if (earshot_subscribe(&bus, "hold") != 0 || earshot_receive(&bus, &message) != 0) return earshot_give_up(&bus);
    wait_for_ever();
    return 0;
}

static int clients(int count)
{
    char address[300];
    void *context = zmq_ctx_new();
    const char *folder = getenv("EARSHOT_RUNTIME");
    zmq_ctx_set(context, ZMQ_MAX_SOCKETS, count + 10);
    snprintf(address, sizeof address, "ipc://%s/bus", folder ? folder : "");
    void **sockets = calloc(count, sizeof *sockets);
    for (int i = 0; i < count; i++) {
        sockets[i] = zmq_socket(context, ZMQ_DEALER);
        if (!sockets[i] || zmq_connect(sockets[i], address) != 0 || zmq_send(sockets[i], "HELLO EAR/1\n", 12, 0) != 12) {
            fprintf(stderr, "hold: %d: %s\n", i, zmq_strerror(zmq_errno()));
            return 1;
        }
    }
    for (int i = 0; i < count; i++) {
        char answer[300];
        int length = zmq_recv(sockets[i], answer, sizeof answer, 0);
        if (length < 7 || memcmp(answer, "WELCOME", 7) != 0) {
            fprintf(stderr, "hold: client %d is not welcome\n", i);
            return 1;
        }
    }
    wait_for_ever();
    return 0;
}

int main(int argc, char **argv)
{
    int count = argc >= 3 ? atoi(argv[2]) : 0;
    if (count > 0 && argc == 4 && strcmp(argv[1], "transfers") == 0) return transfers(count, argv[3]);
    if (count > 0 && argc == 3 && strcmp(argv[1], "clients") == 0) return clients(count);
    fprintf(stderr, "usage: hold transfers COUNT URL | hold clients COUNT\n");
    return 64;
}
