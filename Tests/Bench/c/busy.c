/* busy OUTSTANDING SECONDS URL LENGTH: keeps a number of requests outstanding, for URL?0, URL?1 …, for this time.
   Prints the responses per second. Requires each body in its message, with this length. */
#define _DEFAULT_SOURCE
#include "common.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int ask(earshot_bus *bus, const char *url, long number)
{
    char handler[40], request[24], asked[300];
    snprintf(handler, sizeof handler, "busy/%ld", (long)getpid());
    snprintf(request, sizeof request, "%ld", number);
    snprintf(asked, sizeof asked, "%s?%ld-%ld", url, (long)getpid(), number);
    return earshot_fetch(bus, handler, request, asked, NULL);
}

int main(int argc, char **argv)
{
    int outstanding = argc == 5 ? atoi(argv[1]) : 0;
    if (outstanding < 1) {
        fprintf(stderr, "usage: busy OUTSTANDING SECONDS URL LENGTH\n");
        return 64;
    }
    earshot_bus bus;
    earshot_message message;
    size_t length = atol(argv[4]);
    long asked = 0, answered = 0;
    if (earshot_open(&bus) != 0) return earshot_give_up(&bus);
    double began = now(), end = began + atof(argv[2]), last = began;
    for (; asked < outstanding; asked++)
        if (ask(&bus, argv[3], asked) != 0) return earshot_give_up(&bus);
    for (; answered < asked; answered++) {
        if (receive_terminal(&bus, &message) != 0) return earshot_give_up(&bus);
        int right = strcmp(message.verb, "RESULT") == 0 && zmq_msg_size(&message.body) == length;
        int told = earshot_acknowledge(&bus, &message);
        earshot_free(&message);
        if (!right) {
            fprintf(stderr, "busy: a wrong answer\n");
            return 1;
        }
        last = now();
        if (told != 0 || (last < end && ask(&bus, argv[3], asked++) != 0)) return earshot_give_up(&bus);
    }
    printf("%.1f\n", answered / (last - began));
    earshot_close(&bus);
    return 0;
}
