/* Common functions of the programs. */
#ifndef COMMON_H
#define COMMON_H

#include "earshot.h"

#include <time.h>

/* Returns the seconds of a monotonic clock. */
static inline double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* As earshot_receive, but returns terminals only: after some silence the library sends a ping, and its answer
   arrives too. */
static inline int receive_terminal(earshot_bus *bus, earshot_message *message)
{
    for (;;) {
        if (earshot_receive(bus, message) != 0) return -1;
        if (earshot_is_terminal(message)) return 0;
        earshot_free(message);
    }
}

#endif
