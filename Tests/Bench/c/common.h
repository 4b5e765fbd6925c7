/* What the programs share. */
#ifndef COMMON_H
#define COMMON_H

#include "earshot.h"

#include <time.h>

/* Seconds of a clock that only goes forward. */
static inline double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* As earshot_receive, but for terminals alone: after some silence the library asks for a sign of life, which is answered. */
static inline int receive_terminal(earshot_bus *bus, earshot_message *message)
{
    for (;;) {
        if (earshot_receive(bus, message) != 0) return -1;
        if (earshot_is_terminal(message)) return 0;
        earshot_free(message);
    }
}

#endif
