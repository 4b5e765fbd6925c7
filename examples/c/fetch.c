/* fetch [--pull] [--bus ADDRESS --bus-key FILE --server-key KEY] URL: Writes the body of a URL to standard output. With --pull,
   and over a network, it comes over the connection, and a broken connection is resumed. */
#define _DEFAULT_SOURCE
#include "earshot.h"

#include <string.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    earshot_options options = {0};
    int at = 1;
    for (; at < count && strncmp(arguments[at], "--", 2) == 0; at++) {
        const char **value = strcmp(arguments[at], "--bus") == 0 ? &options.bus
            : strcmp(arguments[at], "--bus-key") == 0            ? &options.key
            : strcmp(arguments[at], "--server-key") == 0         ? &options.server_key
                                                                 : NULL;
        if (value && at + 1 < count) *value = arguments[++at];
        else if (!value && strcmp(arguments[at], "--pull") == 0) options.pull = 1, options.lease = 60;
        else break;
    }
    if (at != count - 1) {
        fprintf(stderr, "usage: fetch [--pull] [--bus ADDRESS --bus-key FILE --server-key KEY] URL\n");
        return EARSHOT_USAGE;
    }
    const char *url = arguments[at];
    /* All programs of the user share the handler names, so a random part keeps this one unique. */
    char handler[64];
    unsigned char random[8];
    if (getentropy(random, sizeof random) != 0) {
        perror("fetch");
        return EARSHOT_FAILED;
    }
    int length = snprintf(handler, sizeof handler, "fetch/");
    for (size_t i = 0; i < sizeof random; i++)
        length += snprintf(handler + length, sizeof handler - length, "%02x", random[i]);

    earshot_bus bus;
    earshot_message message;
    if (earshot_open_with(&bus, &options) != 0 || earshot_fetch(&bus, handler, "1", url, NULL) != 0)
        return earshot_report_and_close(&bus);
    for (;;) {
        if (earshot_receive(&bus, &message) != 0) return earshot_report_and_close(&bus);
        if (earshot_is_terminal(&message)) break;
        earshot_free(&message);
    }
    int status = 0;
    if (strcmp(message.verb, "FAILED") == 0) {
        const char *detail = earshot_field(&message, "detail"), *code = earshot_field(&message, "status");
        fprintf(stderr, "earshot: %s: %s (%s%s%s)\n", url, detail ? detail : "It failed.", message.word[2],
                code ? " " : "", code ? code : "");
        status = EARSHOT_FAILED;
    } else if (earshot_write(&bus, &message, stdout) != 0) {
        earshot_free(&message);
        return earshot_report_and_close(&bus);
    }
    int acknowledged = earshot_acknowledge(&bus, &message);
    earshot_free(&message);
    if (acknowledged != 0) return earshot_report_and_close(&bus);
    earshot_close(&bus);
    return status;
}
