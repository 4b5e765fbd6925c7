/* Internal to the client: where the bus is, and the keys of a bus on a network. */
#ifndef EARSHOT_ADDRESS_H
#define EARSHOT_ADDRESS_H

#include "earshot.h"

/* Whether the bus is on a network. */
int earshot_is_remote(const earshot_bus *bus);

/* Writes the address of a socket of the bus: `bus` or `work`. Fails if its directory is not trusted. */
int earshot_find(earshot_bus *bus, const char *socket, char *address, size_t size);

/* Sets the keys, the limits of time, and heartbeats of a connection over a network. */
int earshot_secure(earshot_bus *bus);

/* Fails because no broker answers. */
int earshot_no_broker(earshot_bus *bus);

/* Notes the reason of a failure. Returns -1. */
int earshot_fail(earshot_bus *bus, int status, const char *format, ...);

#endif
