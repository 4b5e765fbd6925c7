/* subscribers COUNT URL LENGTH: this many connections request one URL, as a file, and wait until each has its
   terminal. Prints the seconds from the first request to the last terminal. Requires files of this length. */
#define _DEFAULT_SOURCE
#include "common.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_right(const earshot_message *message, long long length)
{
    struct stat file;
    const char *path = earshot_field(message, "file");
    if (strcmp(message->verb, "RESULT") == 0 && path && stat(path, &file) == 0 && file.st_size == length) return 1;
    fprintf(stderr, "subscribers: %s %s\n", message->verb, message->word[2]);
    return 0;
}

int main(int argc, char **argv)
{
    int count = argc == 4 ? atoi(argv[1]) : 0;
    if (count < 1) {
        fprintf(stderr, "usage: subscribers COUNT URL LENGTH\n");
        return 64;
    }
    earshot_bus *buses = calloc(count, sizeof *buses);
    earshot_message *messages = calloc(count, sizeof *messages);
    if (!buses || !messages) {
        perror("subscribers");
        return 1;
    }
    for (int i = 0; i < count; i++)
        if (earshot_open(&buses[i]) != 0) return earshot_give_up(&buses[i]);
    double began = now();
    for (int i = 0; i < count; i++) {
        char handler[60];
        snprintf(handler, sizeof handler, "subscribers/%ld/%d", (long)getpid(), i);
        if (earshot_fetch(&buses[i], handler, "1", argv[2], "deliver: file\n") != 0) return earshot_give_up(&buses[i]);
    }
    for (int i = 0; i < count; i++)
        if (receive_terminal(&buses[i], &messages[i]) != 0) return earshot_give_up(&buses[i]);
    double took = now() - began;
    int right = 1;
    for (int i = 0; i < count; i++) {
        if (!is_right(&messages[i], atoll(argv[3]))) right = 0;
        earshot_acknowledge(&buses[i], &messages[i]);
        earshot_free(&messages[i]);
        earshot_close(&buses[i]);
    }
    free(buses);
    free(messages);
    if (!right) return 1;
    printf("%.6f\n", took);
    return 0;
}
