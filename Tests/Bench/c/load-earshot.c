/* Requests from an Earshot bus, as examples/c shows. SERVER is its runtime folder. */
#define _GNU_SOURCE
#include "load.h"
#include "earshot.h"

#include <stdlib.h>
#include <unistd.h>

/* One ACK acknowledges all up to its number; the window is 256. */
enum { ANSWERS_PER_ACK = 64 };

static int client(load_client *client)
{
    setenv("EARSHOT_RUNTIME", client->server, 1);
    earshot_bus bus;
    if (earshot_open(&bus) != 0) return earshot_report_and_close(&bus);
    char handler[32], request[24], url[LOAD_URL_BYTES];
    snprintf(handler, sizeof handler, "bench/%d", getpid());
    load_ready(client);
    while (client->answered < client->requests) {
        for (long number; (number = load_next(client, url)) >= 0;) {
            snprintf(request, sizeof request, "%ld", number);
            if (earshot_fetch(&bus, handler, request, url, client->extra) != 0) return earshot_report_and_close(&bus);
        }
        earshot_message message;
        if (earshot_receive(&bus, &message) != 0) return earshot_report_and_close(&bus);
        if (!earshot_is_terminal(&message) || message.verb[0] != 'R') {
            fprintf(stderr, "%s %s\n", message.verb, message.word[2]);
            return 1;
        }
        if (load_answered(client, atol(message.word[1]), zmq_msg_data(&message.body), zmq_msg_size(&message.body)) != 0)
            return 1;
        if (client->answered % ANSWERS_PER_ACK == 0 && earshot_acknowledge(&bus, &message) != 0)
            return earshot_report_and_close(&bus);
        earshot_free(&message);
    }
    earshot_close(&bus);
    return 0;
}

int main(int count, char **arguments)
{
    return load_main(count, arguments, client);
}
