/* adapter FOLDER [lease=SECONDS]: Executes the commands on standard input, for the tests common to all languages
   (protocols/README.md). Writes bodies to files in FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "earshot.h"

#include <stdlib.h>
#include <string.h>

/* Reports the library's error on standard output, as a line of the protocol of the tests. */
static int report_and_close(earshot_bus *bus)
{
    if (bus->status == EARSHOT_NO_BROKER) puts("gone");
    else printf("error %s\n", bus->error);
    earshot_close(bus);
    return 0;
}

/* Prints a line for a message. Returns 1, 0 if the message has no line, or -1 on failure. */
static int print_message(earshot_bus *bus, const earshot_message *message, const char *folder, int number)
{
    const char *const *word = message->word, *verb = message->verb, *status = earshot_field(message, "status");
    if (earshot_is_terminal(message)) {
        char path[300];
        snprintf(path, sizeof path, "%s/%d", folder, number);
        FILE *file = fopen(path, "wb");
        if (!file || earshot_write(bus, message, file) != 0 || fclose(file) != 0) return -1;
        if (strcmp(verb, "RESULT") == 0) printf("result %s %s %s %s\n", word[0], word[1], word[2], path);
        else printf("failed %s %s %s %s %s\n", word[0], word[1], word[2], status ? status : "-", path);
        return earshot_acknowledge(bus, message) == 0 ? 1 : -1;
    }
    if (strcmp(verb, "PROGRESS") == 0) printf("progress %s %s %s\n", word[0], word[1], word[2]);
    else if (strcmp(verb, "REMOVED") == 0) printf("%s %s %s\n", *word[2] ? "cancelled" : "removed", word[0], word[1]);
    else if (strcmp(verb, "OK") == 0) puts("listening");
    else return 0;
    return 1;
}

int main(int count, char **arguments)
{
    if (count < 2) {
        fprintf(stderr, "usage: adapter FOLDER [lease=SECONDS]\n");
        return EARSHOT_USAGE;
    }
    earshot_options options = {.lease = count > 2 ? atoi(arguments[2] + strlen("lease=")) : 0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    earshot_bus bus;
    if (earshot_open_with(&bus, &options) != 0) return report_and_close(&bus);
    puts("ready");

    char *line = NULL;
    size_t room = 0;
    for (int number = 0; getline(&line, &room, stdin) > 0;) {
        line[strcspn(line, "\n")] = 0;
        char *command = strtok(line, " "), *first = strtok(NULL, " "), *second = strtok(NULL, " ");
        int result = 0;
        if (strcmp(command, "fetch") == 0) {
            char *url = strtok(NULL, " "), fields[1000] = "";
            for (char *field; (field = strtok(NULL, " "));) {
                size_t end = strlen(fields), name = strcspn(field, "=");
                snprintf(fields + end, sizeof fields - end, "%.*s: %s\n", (int)name, field, field + name + 1);
            }
            result = earshot_fetch(&bus, first, second, url, fields);
        } else if (strcmp(command, "cancel") == 0) {
            result = earshot_cancel(&bus, first, second);
        } else if (strcmp(command, "remove") == 0) {
            result = earshot_remove(&bus, first);
        } else if (strcmp(command, "subscribe") == 0) {
            result = earshot_subscribe(&bus, first);
        } else { /* receive */
            int printed = 0;
            while (result == 0 && printed == 0) {
                earshot_message message;
                if ((result = earshot_receive(&bus, &message)) != 0) break;
                printed = print_message(&bus, &message, arguments[1], ++number);
                earshot_free(&message);
                if (printed < 0) result = -1;
            }
        }
        if (result != 0) return report_and_close(&bus);
    }
    free(line);
    earshot_close(&bus);
    return 0;
}
