/* Client of an Earshot bus, protocol EAR/1 (protocols/1-core.md), on libzmq. Only one thread at a time may use a bus. */
#ifndef EARSHOT_H
#define EARSHOT_H

#include <stdio.h>
#include <zmq.h>

/* Exit codes of programs, the same as those of the command `earshot`. */
enum { EARSHOT_FAILED = 1, EARSHOT_USAGE = 64, EARSHOT_NO_BROKER = 69 };

/* Options of a connection. */
typedef struct {
    int pull;       /* whether bodies come over the connection, for programs that cannot open the files of the broker */
    unsigned lease; /* seconds for which the broker keeps the session of a broken connection, which is then resumed; or 0 */
    const char *bus;        /* bus on a network, tcp://HOST:PORT; NULL: the variable EARSHOT_BUS, else a bus of this machine */
    const char *key;        /* key file of this client for it; NULL: the variable EARSHOT_BUS_KEY */
    const char *server_key; /* public key of the bus, or its file; NULL: the variable EARSHOT_SERVER_KEY */
} earshot_options;

/* Connection to a bus. Closing it removes its requests. */
typedef struct {
    void *context;
    void *socket, *monitor; /* the monitor is readable once the connection has ended */
    unsigned long long last_seq; /* `seq` of the last terminal */
    char error[512]; /* reason for the failure of the last call, as a sentence */
    int status;      /* exit code for that failure */
    earshot_options options;
    int is_local; /* whether it is on this machine in any case, as for workers */
    int is_reading; /* whether a body is read, and other messages wait */
    char token[40];                                  /* of a session with a lease */
    unsigned long long sent, answered, acknowledged; /* its last numbers, and the `seq` of the last ACK */
    unsigned connection, sockets;                    /* number of times it was resumed, and of sockets so far */
    struct earshot_sent *log; /* messages that the broker may not have received, and durable FETCHes without an answer,
                                 by number */
    struct earshot_waiting *waiting;                 /* messages received while a body was read, oldest first */
} earshot_bus;

/* Message from the broker. Its strings are valid until earshot_free. */
typedef struct {
    const char *verb;    /* RESULT, FAILED, PROGRESS, REMOVED, ANSWER … */
    const char *word[3]; /* operands; of RESULT and FAILED: handler, request, status or code; "" if absent */
    char *fields;        /* the fields that earshot_field searches */
    const char *http;    /* header fields of the HTTP response, one a line */
    char *head;
    zmq_msg_t body; /* a body that is not in a file; else empty */
} earshot_message;

/* The following functions return 0, or -1 with the reason in `error` and `status`. */

/* Connects and performs the handshake, within 20 s. The caller must call earshot_close, also after a failure. */
int earshot_open(earshot_bus *bus);

/* As earshot_open, with options. Over a network bodies are always pulled, and the lease is 60 s by default. */
int earshot_open_with(earshot_bus *bus, const earshot_options *options);

/* Requests a URL. `fields` is NULL, or fields of FETCH such as "priority: high\ntimeout: 5\n". */
int earshot_fetch(earshot_bus *bus, const char *handler, const char *request, const char *url, const char *fields);

/* Removes a handler with all its requests. The answer is REMOVED with the number of pending requests. */
int earshot_remove(earshot_bus *bus, const char *handler);

/* Cancels one request. The answer is REMOVED with its ID, and 1 if it was pending or 0. */
int earshot_cancel(earshot_bus *bus, const char *handler, const char *request);

/* Subscribes to a handler, or with a trailing slash to all handlers below it. The answer is OK. */
int earshot_subscribe(earshot_bus *bus, const char *pattern);

/* Waits for the next message without a time limit. Skips redelivered terminals. Fails on ERROR or if the broker is gone.
   On success the caller must call earshot_free. */
int earshot_receive(earshot_bus *bus, earshot_message *message);

/* Writes the body of a RESULT to `file`. Call it before earshot_acknowledge: that lets the broker delete the body. */
int earshot_write(earshot_bus *bus, const earshot_message *message, FILE *file);

/* Prints a terminal as a line on standard output. */
int earshot_print(earshot_bus *bus, const earshot_message *message);

/* Acknowledges a RESULT or FAILED. Unacknowledged ones fill the delivery window. */
int earshot_acknowledge(earshot_bus *bus, const earshot_message *message);

/* Functions for workers, protocol EARW/1 (protocols/6-workers.md). A bus that earshot_register opened works only with them,
   earshot_receive, earshot_field, earshot_free, earshot_close and earshot_report_and_close. */

/* Connects as a worker for URLs of a scheme, with `slots` concurrent jobs, within 20 s. The caller must call earshot_close,
   also after a failure. */
int earshot_register(earshot_bus *bus, const char *scheme, int slots);

/* Waits for a message, for input on `descriptor`, or for the time limit; -1 means no limit. Returns 1 if a message can be
   received. Returns 0 if the caller should check `descriptor` and its timers, and wait again. Fails if the broker is gone. */
int earshot_await(earshot_bus *bus, int descriptor, int milliseconds);

/* Completes a JOB with a text as its response. */
int earshot_done(earshot_bus *bus, const char *attempt, const char *content_type, const char *text);

/* Fails a JOB. With the code worker-failed, clients receive `detail`, which is one line. */
int earshot_failed(earshot_bus *bus, const char *attempt, const char *code, const char *detail);

/* Answers a PING of the broker. */
int earshot_pong(earshot_bus *bus);

/* Ends the worker's session. */
int earshot_bye(earshot_bus *bus);

/* Returns whether the message is a terminal: RESULT or FAILED. */
int earshot_is_terminal(const earshot_message *message);

/* Returns the value of a field, or NULL if it is absent. */
const char *earshot_field(const earshot_message *message, const char *name);

void earshot_free(earshot_message *message);
void earshot_close(earshot_bus *bus);

/* Prints the reason of the last failure to standard error, closes the bus, and returns the exit code. */
int earshot_report_and_close(earshot_bus *bus);

#endif
