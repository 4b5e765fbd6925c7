/* gallery HANDLER URL...: Requests all URLs, and removes the handler after half of the results. */
#include "earshot.h"

#include <string.h>

int main(int count, char **arguments)
{
    if (count < 3) {
        fprintf(stderr, "usage: gallery HANDLER URL...\n");
        return EARSHOT_USAGE;
    }
    const char *handler = arguments[1];
    int wanted = count - 2, received = 0, dropped = 0;

    earshot_bus bus;
    if (earshot_open(&bus) != 0) return earshot_report_and_close(&bus);
    for (int i = 0; i < wanted; i++) {
        char request[16];
        snprintf(request, sizeof request, "%d", i + 1);
        if (earshot_fetch(&bus, handler, request, arguments[2 + i], NULL) != 0) return earshot_report_and_close(&bus);
    }
    while (!dropped) {
        earshot_message message;
        if (earshot_receive(&bus, &message) != 0) return earshot_report_and_close(&bus);
        int result = 0;
        if (earshot_is_terminal(&message)) {
            result = earshot_print(&bus, &message);
            if (result == 0) result = earshot_acknowledge(&bus, &message);
            if (result == 0 && ++received == (wanted + 1) / 2) result = earshot_remove(&bus, handler);
        } else if (strcmp(message.verb, "REMOVED") == 0) {
            printf("dropped %s\n", message.word[1]);
            dropped = 1;
        }
        earshot_free(&message);
        if (result != 0) return earshot_report_and_close(&bus);
    }
    earshot_close(&bus);
    return 0;
}
