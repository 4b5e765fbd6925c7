/* watch HANDLER [COUNT]: Prints a line for each result of a handler. HANDLER/ selects all handlers below it. */
#include "earshot.h"

#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments)
{
    if (count < 2 || count > 3 || (count == 3 && atol(arguments[2]) < 1)) {
        fprintf(stderr, "usage: watch HANDLER [COUNT]\n");
        return EARSHOT_USAGE;
    }
    long left = count == 3 ? atol(arguments[2]) : -1;

    earshot_bus bus;
    if (earshot_open(&bus) != 0 || earshot_subscribe(&bus, arguments[1]) != 0) return earshot_report_and_close(&bus);
    int listening = 0;
    while (left != 0) {
        earshot_message message;
        if (earshot_receive(&bus, &message) != 0) return earshot_report_and_close(&bus);
        int result = 0;
        if (earshot_is_terminal(&message)) {
            result = earshot_print(&bus, &message);
            if (result == 0) result = earshot_acknowledge(&bus, &message);
            if (left > 0) left--;
        } else if (!listening && strcmp(message.verb, "OK") == 0) {
            fprintf(stderr, "earshot: listening to %s\n", arguments[1]);
            listening = 1;
        }
        earshot_free(&message);
        if (result != 0) return earshot_report_and_close(&bus);
    }
    earshot_close(&bus);
    return 0;
}
