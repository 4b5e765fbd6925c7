/* Common part of the benchmark's clients: a number of requests by a number of clients, each with a number
   outstanding, timed and checked. A client program passes a function to `ask_main`; the rest is here, so that all
   are measured alike. */
#ifndef ASK_H
#define ASK_H

#include <stddef.h>
#include <stdint.h>

enum { ASK_URL_BYTES = 512 };

/* State of one client. Requests are numbered from 0. */
typedef struct {
    const char *place; /* where its server is: a folder, an endpoint, a port */
    const char *extra; /* fields for each request; "" if none are given */
    int outstanding;
    long requests;
    long asked, answered;
    struct ask_ledger *ledger;
    uint64_t *times; /* of each request: when it was asked, then how long it took */
} ask_client;

/* Runs `client` in each of the clients' processes and prints one line of JSON. `client` returns 0, or prints the
   error to standard error and returns another value. */
int ask_main(int count, char **arguments, int (*client)(ask_client *client));

/* Call when the client is connected. Returns when all are connected and the clock runs. */
void ask_ready(ask_client *client);

/* Writes the URL of the next request and returns its number; -1 if enough are outstanding, or all have been sent. */
long ask_next(ask_client *client, char url[ASK_URL_BYTES]);

/* Counts a response. Fails if it is surplus, a duplicate, or of the wrong size. */
int ask_answered(ask_client *client, long number, const void *body, size_t size);

#endif
