/* Common part of the benchmark's clients: a number of requests by a number of clients, each with a number
   outstanding, timed and checked. A client program passes a function to `load_main`; the rest is here, so that all
   are measured alike. */
#ifndef LOAD_H
#define LOAD_H

#include <stddef.h>
#include <stdint.h>

enum { LOAD_URL_BYTES = 512 };

/* State of one client. Requests are numbered from 0. */
typedef struct {
    const char *server; /* where its server is: a folder, an endpoint, a port */
    const char *extra; /* fields for each request; "" if none are given */
    int outstanding;
    long requests;
    long requested, answered;
    struct load_ledger *ledger;
    uint64_t *times; /* of each request: when it was sent, then its duration */
} load_client;

/* Runs `client` in each of the clients' processes and prints one line of JSON. `client` returns 0, or prints the
   error to standard error and returns another value. */
int load_main(int count, char **arguments, int (*client)(load_client *client));

/* Call when the client is connected. Returns when all are connected and the clock runs. */
void load_ready(load_client *client);

/* Writes the URL of the next request and returns its number; -1 if enough are outstanding, or all have been sent. */
long load_next(load_client *client, char url[LOAD_URL_BYTES]);

/* Counts a response. Fails if it is surplus, a duplicate, or of the wrong size. */
int load_answered(load_client *client, long number, const void *body, size_t size);

#endif
