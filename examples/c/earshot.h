/* A client of an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md), on libzmq. One thread at a time uses a bus. */
#ifndef EARSHOT_H
#define EARSHOT_H

#include <stdio.h>
#include <zmq.h>

/* Exit statuses of programs, as those of the command `earshot`. */
enum { EARSHOT_FAILED = 1, EARSHOT_USAGE = 64, EARSHOT_NO_BROKER = 69 };

/* A connection. What it asked for ends with it. */
typedef struct {
    void *context;
    void *socket;
    unsigned long long heard; /* the last terminal's `seq` */
    char error[512]; /* why the last call failed, a sentence */
    int status;      /* the exit status that fits it */
} earshot_bus;

/* A message of the broker. Its strings live until earshot_free. */
typedef struct {
    const char *verb;    /* RESULT, FAILED, PROGRESS, REMOVED, ANSWER … */
    const char *word[3]; /* the operands; of RESULT and FAILED: handler, request, status or code; "" if absent */
    char *fields;        /* what earshot_field reads */
    const char *http;    /* the response's header fields, one a line */
    char *head;
    zmq_msg_t body; /* of bodies that do not come in a file; else empty */
} earshot_message;

/* These return 0, or -1 and say why in `error` and `status`. */

/* Connects and is greeted, in at most 3 s. earshot_close is due either way. */
int earshot_open(earshot_bus *bus);

/* Wants a URL. `fields` is NULL, or lines such as "priority: high\ntimeout: 5\n". */
int earshot_fetch(earshot_bus *bus, const char *handler, const char *request, const char *url, const char *fields);

/* Nothing under the handler is wanted any more. Answered with REMOVED and how many requests had not ended. */
int earshot_remove(earshot_bus *bus, const char *handler);

/* One request is not wanted any more. Answered with CANCELLED. */
int earshot_cancel(earshot_bus *bus, const char *handler, const char *request);

/* Hears what becomes of a handler's requests, or with a slash at its end of all below. Answered with ANSWER. */
int earshot_subscribe(earshot_bus *bus, const char *pattern);

/* The next message, however long it takes, a terminal once; fails on ERROR, and when the broker is gone. earshot_free is
   due on 0. */
int earshot_receive(earshot_bus *bus, earshot_message *message);

/* Writes a RESULT's body to `file`. Only before the acknowledgement: then the file it may be in is gone. */
int earshot_write(earshot_bus *bus, const earshot_message *message, FILE *file);

/* Prints what became of a request as a line of standard output. */
int earshot_print(earshot_bus *bus, const earshot_message *message);

/* Acknowledges a RESULT or FAILED: unacknowledged ones are in the way of the next. */
int earshot_acknowledge(earshot_bus *bus, const earshot_message *message);

/* For workers, protocol EARW/1 (protocols/2-WORKER.md): a bus that earshot_register opened is used with these, with
   earshot_receive, earshot_field and earshot_free, and with nothing else. */

/* Connects as a worker for URLs of a scheme, so many at once, in at most 3 s. earshot_close is due either way. */
int earshot_register(earshot_bus *bus, const char *scheme, int slots);

/* Waits until there is something to do or the milliseconds are over, -1 for any time. 1: a message can be received. 0: look
   whether `descriptor` can be read, and what is due, and wait again. Fails when the broker is gone. */
int earshot_await(earshot_bus *bus, int descriptor, int milliseconds);

/* Answers a JOB with a text. */
int earshot_done(earshot_bus *bus, const char *attempt, const char *content_type, const char *text);

/* Answers a JOB that came to nothing; `detail` is a line for who asked, if the code is worker-failed. */
int earshot_failed(earshot_bus *bus, const char *attempt, const char *code, const char *detail);

/* Answers PING. */
int earshot_pong(earshot_bus *bus);

/* Leaves. */
int earshot_bye(earshot_bus *bus);

/* Whether the message is the last one of a request: RESULT or FAILED. */
int earshot_is_terminal(const earshot_message *message);

/* The value of a field, or NULL. */
const char *earshot_field(const earshot_message *message, const char *name);

void earshot_free(earshot_message *message);
void earshot_close(earshot_bus *bus);

/* Says on standard error what failed, closes the bus, and returns the exit status. */
int earshot_give_up(earshot_bus *bus);

#endif
