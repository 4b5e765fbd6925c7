/* What the clients of the benchmark share: so many requests by so many clients, each with so many outstanding, timed
   and checked. A client is a program that gives `ask_main` a function; the rest is here, so that all are measured
   alike. */
#ifndef ASK_H
#define ASK_H

#include <stddef.h>
#include <stdint.h>

enum { ASK_URL_BYTES = 512 };

/* What one client does, and how far it is. Requests are numbered from 0. */
typedef struct {
    const char *place; /* where its server is: a folder, an endpoint, a port */
    const char *extra; /* fields for each request; "" if none are given */
    int outstanding;
    long requests;
    long asked, answered;
    struct ask_ledger *ledger;
    uint64_t *times; /* of each request: when it was asked, then how long it took */
} ask_client;

/* Runs `client` in each of the clients' processes and prints one line of JSON. `client` returns 0, or says on standard
   error what failed and returns something else. */
int ask_main(int count, char **arguments, int (*client)(ask_client *client));

/* To be called when the client is connected: returns when all are, and the clock runs. */
void ask_ready(ask_client *client);

/* Writes the URL of the next request and returns its number; -1 if enough are outstanding, or all have been asked. */
long ask_next(ask_client *client, char url[ASK_URL_BYTES]);

/* Takes an answer, and fails if it was not asked for, comes twice or has another size than it must have. */
int ask_answered(ask_client *client, long number, const void *body, size_t size);

#endif
