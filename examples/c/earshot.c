#define _DEFAULT_SOURCE
#include "address.h"

#include <errno.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GREETING_MS = 20000, SILENCE_MS = 5000, LINGER_MS = 500 };
enum { PIECE_BYTES = 256 << 10, OPEN_READS = 4 };
enum { REMOTE_LEASE_SECONDS = 60 }; /* over a network a lost connection does not mean a dead client */
enum { LOST = -1 }; /* status: the connection has ended */

struct earshot_sent {
    struct earshot_sent *next;
    unsigned long long number;
    char head[];
};

struct earshot_waiting {
    struct earshot_waiting *next;
    earshot_message message;
};

/* Returns whether `text` is valid as an operand. A line feed in it would inject fields into the message. */
static int is_word(const char *text)
{
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 127) return 0;
    return *text != 0;
}

/* Sends a message: its head, and the body if it is not NULL. */
static int transmit(earshot_bus *bus, const char *head, const char *body)
{
    int sent = zmq_send(bus->socket, head, strlen(head), ZMQ_DONTWAIT | (body ? ZMQ_SNDMORE : 0));
    if (sent >= 0 && body) sent = zmq_send(bus->socket, body, strlen(body), ZMQ_DONTWAIT);
    if (sent >= 0) return 0;
    return earshot_fail(bus, EARSHOT_FAILED, "cannot send: %s", zmq_strerror(zmq_errno()));
}

/* Returns the head of a message, to be freed: the words as its first line, and the fields. NULL ends the words. */
static char *compose(earshot_bus *bus, const char *fields, const char *const words[])
{
    size_t length = strlen(fields);
    for (int i = 0; words[i]; i++) {
        if (!is_word(words[i])) {
            earshot_fail(bus, EARSHOT_USAGE, "a URL or name is empty, or has a space or control character in it");
            return NULL;
        }
        length += strlen(words[i]) + 1;
    }
    char *head = malloc(length + 1);
    if (!head) {
        earshot_fail(bus, EARSHOT_FAILED, "%s", strerror(errno));
        return NULL;
    }
    char *end = head;
    for (int i = 0; words[i]; i++) end = stpcpy(stpcpy(end, words[i]), words[i + 1] ? " " : "\n");
    strcpy(end, fields);
    return head;
}

static int note(earshot_bus *bus, const char *head, unsigned long long *number);
static int resume(earshot_bus *bus);

/* Sends a message with its number, unless that is 0. */
static int send_numbered(earshot_bus *bus, const char *head, unsigned long long number, const char *body)
{
    if (!number) return transmit(bus, head, body);
    int line = (int)strcspn(head, "\n") + 1;
    char *numbered = malloc(strlen(head) + 40);
    if (!numbered) return earshot_fail(bus, EARSHOT_FAILED, "no memory");
    sprintf(numbered, "%.*snumber: %llu\n%s", line, head, number, head + line);
    int result = transmit(bus, numbered, body);
    free(numbered);
    return result;
}

static int send_command(earshot_bus *bus, const char *fields, const char *const words[], const char *body)
{
    char *head = compose(bus, fields, words);
    if (!head) return -1;
    unsigned long long number = 0;
    int result = note(bus, head, &number);
    if (result == 0) result = send_numbered(bus, head, number, body);
    free(head);
    return result;
}

static int send_head(earshot_bus *bus, const char *fields, const char *const words[])
{
    return send_command(bus, fields, words, NULL);
}

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static const char GONE[] = "the broker is gone: start one with `earshot serve`";

/* Waits for a message, also for `descriptor` unless it is -1, and at most for the time unless it is -1. Returns 1 if a
   message can be received, and otherwise 0. The end of the connection is a failure after its last message. */
static int await(earshot_bus *bus, int descriptor, long milliseconds)
{
    zmq_pollitem_t items[] = {{.socket = bus->socket, .events = ZMQ_POLLIN},
                              {.socket = bus->monitor, .events = ZMQ_POLLIN},
                              {.fd = descriptor, .events = ZMQ_POLLIN}};
    if (zmq_poll(items, descriptor < 0 ? 2 : 3, milliseconds) < 0 && zmq_errno() != EINTR)
        return earshot_fail(bus, EARSHOT_FAILED, "cannot poll: %s", zmq_strerror(zmq_errno()));
    if (items[0].revents) return 1;
    if (!items[1].revents) return 0;
    /* Messages may have arrived between the checks of the two sockets. */
    if (zmq_poll(items, 1, 0) > 0) return 1;
    return earshot_fail(bus, LOST, "%s", GONE);
}

static int set(earshot_bus *bus, int option, int value)
{
    return zmq_setsockopt(bus->socket, option, &value, sizeof value);
}

/* Closes the connection. */
static void drop_socket(earshot_bus *bus)
{
    if (bus->monitor) zmq_close(bus->monitor);
    if (bus->socket) {
        zmq_socket_monitor(bus->socket, NULL, 0);
        zmq_close(bus->socket);
    }
    bus->socket = bus->monitor = NULL;
}

/* Creates the socket, for one connection: messages for a broker must never reach the next one. libzmq would connect
   again in an hour. Without a reconnection, and with ZMQ_IMMEDIATE, it drops messages that have arrived. */
static int make_socket(earshot_bus *bus)
{
    char end[40];
    sprintf(end, "inproc://end-%u", ++bus->sockets); /* libzmq frees the name of an earlier one later */
    if (!bus->context) bus->context = zmq_ctx_new();
    bus->socket = bus->context ? zmq_socket(bus->context, ZMQ_DEALER) : NULL;
    bus->monitor = bus->context ? zmq_socket(bus->context, ZMQ_PAIR) : NULL;
    /* libzmq reports that it will connect again after the last message of a connection, and after a failed attempt. */
    if (!bus->socket || !bus->monitor || set(bus, ZMQ_LINGER, LINGER_MS) != 0
        || set(bus, ZMQ_RECONNECT_IVL, 3600000) != 0 || set(bus, ZMQ_SNDHWM, 0) != 0
        || zmq_socket_monitor(bus->socket, end, ZMQ_EVENT_CONNECT_RETRIED) != 0
        || zmq_connect(bus->monitor, end) != 0)
        return earshot_fail(bus, EARSHOT_FAILED, "no socket: %s", zmq_strerror(zmq_errno()));
    return earshot_is_remote(bus) ? earshot_secure(bus) : 0;
}

static int receive_any(earshot_bus *bus, earshot_message *message, long milliseconds);
static int refused(earshot_bus *bus, earshot_message *message);

static int is_error(const earshot_message *message)
{
    return strcmp(message->verb, "ERROR") == 0;
}

/* Connects to the endpoint, sends the first message, and waits for the answer, which the caller must free. */
static int greet(earshot_bus *bus, const char *endpoint, const char *fields, const char *const words[],
                 earshot_message *answer)
{
    char address[300];
    if (earshot_find(bus, endpoint, address, sizeof address) != 0) return -1;
    if (zmq_connect(bus->socket, address) != 0)
        return earshot_fail(bus, EARSHOT_NO_BROKER, "cannot connect to %s: %s", address, zmq_strerror(zmq_errno()));
    char *head = compose(bus, fields, words);
    if (!head) return -1;
    int sent = transmit(bus, head, NULL);
    free(head);
    if (sent != 0) return -1;
    int received;
    /* The refusal of the first message has no number, but that of an earlier message can come first. */
    while ((received = receive_any(bus, answer, GREETING_MS)) > 0 && is_error(answer) && earshot_field(answer, "to"))
        earshot_free(answer);
    if (received > 0) return is_error(answer) ? refused(bus, answer) : 0;
    return received == 0 || bus->status == LOST ? earshot_no_broker(bus) : -1;
}

/* Lowest number whose answer is missing. That to a durable FETCH may come after those to later messages. */
static unsigned long long unanswered(const earshot_bus *bus)
{
    return bus->log && bus->log->number <= bus->answered ? bus->log->number : bus->answered + 1;
}

/* Opens or resumes the session. */
static int hello(earshot_bus *bus, earshot_message *answer)
{
    char fields[300] = "", *end = fields;
    if (bus->options.lease) end += sprintf(end, "lease: %u\n", bus->options.lease);
    if (bus->token[0]) end += sprintf(end, "token: %s\nunanswered: %llu\n", bus->token, unanswered(bus));
    if (bus->options.pull) strcpy(end, "bodies: pull\n");
    if (make_socket(bus) != 0) return -1;
    return greet(bus, "bus", fields, (const char *[]){"HELLO", "EAR/1", NULL}, answer);
}

int earshot_open(earshot_bus *bus)
{
    return earshot_open_with(bus, &(earshot_options){0});
}

int earshot_open_with(earshot_bus *bus, const earshot_options *options)
{
    memset(bus, 0, sizeof *bus);
    bus->options = *options;
    if (earshot_is_remote(bus)) bus->options.pull = 1;
    if (earshot_is_remote(bus) && !bus->options.lease) bus->options.lease = REMOTE_LEASE_SECONDS;
    earshot_message answer;
    if (hello(bus, &answer) != 0) return -1;
    const char *token = earshot_field(&answer, "token");
    if (token) snprintf(bus->token, sizeof bus->token, "%s", token);
    earshot_free(&answer);
    return 0;
}

int earshot_register(earshot_bus *bus, const char *scheme, int slots)
{
    memset(bus, 0, sizeof *bus);
    bus->is_local = 1;
    if (make_socket(bus) != 0) return -1;
    char fields[200];
    snprintf(fields, sizeof fields, "slots: %d\nschemes: %s\npid: %ld\ndrain: yes\n", slots, scheme, (long)getpid());
    earshot_message answer;
    if (greet(bus, "work", fields, (const char *[]){"READY", "EARW/1", NULL}, &answer) != 0) return -1;
    earshot_free(&answer);
    return 0;
}

int earshot_await(earshot_bus *bus, int descriptor, int milliseconds)
{
    int ready = await(bus, descriptor, milliseconds);
    if (ready < 0 && bus->status == LOST) bus->status = EARSHOT_NO_BROKER;
    return ready;
}

int earshot_done(earshot_bus *bus, const char *attempt, const char *content_type, const char *text)
{
    char fields[300];
    snprintf(fields, sizeof fields, "length: %zu\n\ncontent-type: %s\n", strlen(text), content_type);
    return send_command(bus, fields, (const char *[]){"DONE", attempt, "200", NULL}, text);
}

int earshot_failed(earshot_bus *bus, const char *attempt, const char *code, const char *detail)
{
    char fields[300];
    snprintf(fields, sizeof fields, "detail: %s\n", detail);
    return send_head(bus, fields, (const char *[]){"FAILED", attempt, code, NULL});
}

int earshot_pong(earshot_bus *bus)
{
    return send_head(bus, "", (const char *[]){"PONG", NULL});
}

int earshot_bye(earshot_bus *bus)
{
    return send_head(bus, "", (const char *[]){"BYE", NULL});
}

int earshot_fetch(earshot_bus *bus, const char *handler, const char *request, const char *url, const char *fields)
{
    return send_head(bus, fields ? fields : "", (const char *[]){"FETCH", handler, request, url, NULL});
}

int earshot_remove(earshot_bus *bus, const char *handler)
{
    return send_head(bus, "", (const char *[]){"REMOVE", handler, NULL});
}

int earshot_cancel(earshot_bus *bus, const char *handler, const char *request)
{
    return send_head(bus, "", (const char *[]){"REMOVE", handler, request, NULL});
}

int earshot_subscribe(earshot_bus *bus, const char *pattern)
{
    return send_head(bus, "", (const char *[]){"SUBSCRIBE", pattern, NULL});
}

/* Splits the head into verb, operands, fields and HTTP fields. */
static void parse(earshot_message *message)
{
    char *end = strstr(message->head, "\n\n");
    message->http = end ? end + 2 : "";
    if (end) end[1] = 0;
    char *line_end = strchr(message->head, '\n');
    message->fields = line_end ? line_end + 1 : strchr(message->head, 0);
    if (line_end) *line_end = 0;

    char *rest = message->head;
    message->verb = strsep(&rest, " ");
    for (int i = 0; i < 3; i++) {
        const char *word = strsep(&rest, " ");
        message->word[i] = word ? word : "";
    }
    for (char *at = message->fields; *at; at++)
        if (*at == '\n') *at = 0; /* each field becomes a string; an empty string ends the list */
}

/* Receives a message. Returns 1, 0 after a time-out, or -1 after a failure. */
static int receive_any(earshot_bus *bus, earshot_message *message, long milliseconds)
{
    int ready = await(bus, -1, milliseconds);
    if (ready <= 0) return ready;
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    zmq_msg_init(&message->body);
    message->head = NULL;
    if (zmq_msg_recv(&frame, bus->socket, 0) < 0
        || (zmq_msg_more(&frame) && zmq_msg_recv(&message->body, bus->socket, 0) < 0)) {
        earshot_fail(bus, EARSHOT_FAILED, "cannot receive: %s", zmq_strerror(zmq_errno()));
    } else {
        size_t length = zmq_msg_size(&frame);
        message->head = calloc(length + 2, 1); /* two zeros: the end of the last field and the end of the list */
        if (message->head) memcpy(message->head, zmq_msg_data(&frame), length);
        else earshot_fail(bus, EARSHOT_FAILED, "no memory");
    }
    zmq_msg_close(&frame);
    if (!message->head) {
        zmq_msg_close(&message->body);
        return -1;
    }
    parse(message);
    return 1;
}

/* Fails with the reason of an ERROR, which it frees. */
static int refused(earshot_bus *bus, earshot_message *message)
{
    if (strcmp(message->word[0], "hello-required") == 0) {
        earshot_fail(bus, EARSHOT_NO_BROKER, "the broker has ended and another one is there: ask again");
    } else {
        const char *detail = earshot_field(message, "detail");
        int is_passing = strcmp(message->word[0], "session-in-use") == 0;
        earshot_fail(bus, is_passing ? EARSHOT_NO_BROKER : EARSHOT_FAILED, "%s: %s", message->word[0], detail ? detail : "");
    }
    earshot_free(message);
    return -1;
}

static void confirm(earshot_bus *bus, const earshot_message *message);

/* Whether an ERROR is about an earlier message, and the session stands. */
static int is_about_another(const earshot_message *message)
{
    return earshot_field(message, "to") && strcmp(message->word[0], "hello-required") != 0;
}

/* Receives a message. Returns 1, 0 after a time-out, or -1 after a failure or if it is an ERROR. One about an earlier message
 * waits as a message while a body is read. */
static int receive_within(earshot_bus *bus, earshot_message *message, long milliseconds)
{
    int received = receive_any(bus, message, milliseconds);
    if (received <= 0 || !is_error(message) || (bus->is_reading && is_about_another(message))) return received;
    confirm(bus, message);
    return refused(bus, message);
}

/* Receives a message. A broker that ends sends none, so a QUERY checks that it is alive after some silence. */
static int receive(earshot_bus *bus, earshot_message *message)
{
    int received = receive_within(bus, message, SILENCE_MS);
    if (received == 0) {
        if (send_head(bus, "", (const char *[]){"QUERY", "ping", NULL}) != 0) return -1;
        received = receive_within(bus, message, SILENCE_MS);
    }
    if (received == 0) return earshot_fail(bus, LOST, "%s", GONE);
    if (received > 0) confirm(bus, message);
    return received > 0 ? 0 : -1;
}

/* Receives a message, except redelivered terminals. */
static int receive_new(earshot_bus *bus, earshot_message *message)
{
    for (;;) {
        if (receive(bus, message) != 0) return -1;
        const char *seq = earshot_is_terminal(message) ? earshot_field(message, "seq") : NULL;
        if (!seq) return 0;
        unsigned long long number = strtoull(seq, NULL, 10);
        if (number > bus->last_seq) {
            bus->last_seq = number;
            return 0;
        }
        earshot_free(message); /* a redelivered terminal, with the same number as before */
    }
}

int earshot_receive(earshot_bus *bus, earshot_message *message)
{
    struct earshot_waiting *first = bus->waiting;
    if (first) {
        bus->waiting = first->next;
        *message = first->message;
        zmq_msg_init(&message->body);
        zmq_msg_move(&message->body, &first->message.body);
        free(first);
        return is_error(message) ? refused(bus, message) : 0;
    }
    while (receive_new(bus, message) != 0)
        if (bus->status != LOST || resume(bus) != 0) return -1;
    return 0;
}

/* Sessions with a lease. */

/* Numbers a message of a client. In a session with a lease logs it until an answer shows that the broker has received it. */
static int note(earshot_bus *bus, const char *head, unsigned long long *number)
{
    if (bus->is_local || strncmp(head, "ACK ", 4) == 0 || strncmp(head, "READ ", 5) == 0) return 0;
    *number = ++bus->sent;
    if (!bus->token[0]) return 0;
    struct earshot_sent *entry = malloc(sizeof *entry + strlen(head) + 1), **last = &bus->log;
    if (!entry) return earshot_fail(bus, EARSHOT_FAILED, "no memory");
    entry->number = bus->sent;
    entry->next = NULL;
    strcpy(entry->head, head);
    while (*last) last = &(*last)->next;
    *last = entry;
    return 0;
}

static void drop(struct earshot_sent **at)
{
    struct earshot_sent *entry = *at;
    *at = entry->next;
    free(entry);
}

/* Whether a message is a durable FETCH, whose answer may come after those to later messages. */
static int is_durable(const struct earshot_sent *entry)
{
    int durable = 0;
    if (strncmp(entry->head, "FETCH ", 6) != 0) return 0;
    /* The fields end at an empty line. */
    for (const char *at = strchr(entry->head, '\n'); at && at[1] != '\n'; at = strchr(at + 1, '\n'))
        if (strncmp(at, "\ndurable:", 9) == 0) durable = strncmp(at + 9 + strspn(at + 9, " "), "yes", 3) == 0;
    return durable;
}

/* Drops the message that an answer names, or that a terminal ends, and all before it but durable FETCHes from the log. */
static void confirm(earshot_bus *bus, const earshot_message *message)
{
    const char *to = earshot_field(message, "to");
    unsigned long long number = to ? strtoull(to, NULL, 10) : 0;
    if (number > bus->answered) bus->answered = number;
    if (!to && earshot_is_terminal(message)) {
        char start[300];
        int length = snprintf(start, sizeof start, "FETCH %s %s ", message->word[0], message->word[1]);
        for (struct earshot_sent *entry = bus->log; entry && !number; entry = entry->next)
            if (strncmp(entry->head, start, length) == 0) number = entry->number;
    }
    for (struct earshot_sent **at = &bus->log; *at && (*at)->number <= number;)
        if ((*at)->number < number && is_durable(*at)) at = &(*at)->next;
        else drop(at);
}

/* Repeats the messages of the session that the broker has not received, and asks each QUERY without an answer again. */
static int send_again(earshot_bus *bus, unsigned long long resumed)
{
    bus->connection++;
    bus->sent = resumed;
    struct earshot_sent *again = NULL, **last = &again, **at = &bus->log;
    while (*at) {
        struct earshot_sent *entry = *at;
        if (entry->number > resumed || strncmp(entry->head, "QUERY ", 6) == 0) {
            *at = entry->next;
            entry->next = NULL;
            *last = entry;
            last = &entry->next;
        } else if (is_durable(entry)) {
            at = &entry->next;
        } else {
            drop(at);
        }
    }
    *at = again;
    if (bus->acknowledged) {
        char ack[40];
        snprintf(ack, sizeof ack, "ACK %llu\n", bus->acknowledged);
        if (transmit(bus, ack, NULL) != 0) return -1;
    }
    for (struct earshot_sent *entry = again; entry; entry = entry->next) {
        entry->number = ++bus->sent;
        if (send_numbered(bus, entry->head, entry->number, NULL) != 0) return -1;
    }
    return 0;
}

/* Connects again and resumes the session, if it has a lease. */
static int resume(earshot_bus *bus)
{
    if (!bus->token[0]) return earshot_fail(bus, EARSHOT_NO_BROKER, "%s", GONE);
    long long end = now_ms() + bus->options.lease * 1000LL;
    for (int pause = 10; now_ms() < end; pause = pause < 500 ? 2 * pause : 1000) {
        poll(NULL, 0, pause);
        drop_socket(bus);
        earshot_message answer;
        int result = hello(bus, &answer);
        if (result == 0) {
            const char *resumed = earshot_field(&answer, "resumed");
            unsigned long long number = resumed ? strtoull(resumed, NULL, 10) : 0;
            earshot_free(&answer);
            if (!resumed) return earshot_fail(bus, EARSHOT_NO_BROKER, "the session has ended: ask again");
            result = send_again(bus, number);
        }
        if (result == 0) return 0;
        if (bus->status != LOST && bus->status != EARSHOT_NO_BROKER) return -1;
    }
    return earshot_fail(bus, EARSHOT_NO_BROKER, "%s", GONE);
}

/* Bodies that are read by READ. */

/* Keeps a message for earshot_receive. */
static int keep(earshot_bus *bus, earshot_message *message)
{
    struct earshot_waiting *entry = malloc(sizeof *entry), **last = &bus->waiting;
    if (!entry) {
        earshot_free(message);
        return earshot_fail(bus, EARSHOT_FAILED, "no memory");
    }
    entry->next = NULL;
    entry->message = *message;
    zmq_msg_init(&entry->message.body);
    zmq_msg_move(&entry->message.body, &message->body);
    while (*last) last = &(*last)->next;
    *last = entry;
    return 0;
}

/* Receives a message. Keeps the bytes of DATA in `parts`, and other messages for earshot_receive. */
static int take_data(earshot_bus *bus, const char *seq, unsigned long long taken, zmq_msg_t *parts)
{
    earshot_message message;
    if (receive_new(bus, &message) != 0) return bus->status == LOST ? resume(bus) : -1;
    if (strcmp(message.verb, "DATA") != 0 && strcmp(message.verb, "PROGRESS") != 0) return keep(bus, &message);
    unsigned long long offset = strtoull(message.word[1], NULL, 10);
    int result = 0;
    if (strcmp(message.verb, "DATA") == 0 && strcmp(message.word[0], seq) == 0) {
        const char *error = earshot_field(&message, "error"), *detail = earshot_field(&message, "detail");
        if (error) result = earshot_fail(bus, EARSHOT_FAILED, "%s: %s", error, detail ? detail : "");
        else if (offset - taken < OPEN_READS * PIECE_BYTES)
            zmq_msg_move(&parts[offset / PIECE_BYTES % OPEN_READS], &message.body);
    }
    earshot_free(&message);
    return result;
}

static int read_on(earshot_bus *bus, const earshot_message *message, FILE *file, EVP_MD_CTX *digest, zmq_msg_t *parts)
{
    const char *seq = earshot_field(message, "seq"), *text = earshot_field(message, "length");
    unsigned long long length = text ? strtoull(text, NULL, 10) : 0, requested = 0, taken = 0;
    unsigned connection = bus->connection;
    while (taken < length) {
        if (connection != bus->connection) { /* The broken connection had READs without an answer. */
            connection = bus->connection;
            requested = taken;
        } else if (requested < length && requested < taken + OPEN_READS * PIECE_BYTES) {
            char offset[24], size[24];
            snprintf(offset, sizeof offset, "%llu", requested);
            snprintf(size, sizeof size, "%llu", length - requested < PIECE_BYTES ? length - requested : PIECE_BYTES);
            requested += PIECE_BYTES;
            if (send_head(bus, "", (const char *[]){"READ", seq, offset, size, NULL}) != 0) return -1;
        } else {
            if (take_data(bus, seq, taken, parts) != 0) return -1;
            for (zmq_msg_t *part; taken < length; taken += PIECE_BYTES) {
                part = &parts[taken / PIECE_BYTES % OPEN_READS];
                size_t size = zmq_msg_size(part);
                if (size == 0) break;
                if (size != (length - taken < PIECE_BYTES ? length - taken : PIECE_BYTES))
                    return earshot_fail(bus, EARSHOT_FAILED, "a part of the body is missing");
                if (fwrite(zmq_msg_data(part), 1, size, file) != size)
                    return earshot_fail(bus, EARSHOT_FAILED, "cannot write: %s", strerror(errno));
                EVP_DigestUpdate(digest, zmq_msg_data(part), size);
                zmq_msg_close(part);
                zmq_msg_init(part);
            }
        }
    }
    unsigned char hash[32];
    char hex[65];
    EVP_DigestFinal_ex(digest, hash, NULL);
    for (size_t i = 0; i < sizeof hash; i++) sprintf(hex + 2 * i, "%02x", hash[i]);
    const char *expected = earshot_field(message, "sha-256");
    if (expected && strcmp(expected, hex) != 0)
        return earshot_fail(bus, EARSHOT_FAILED, "the body has another hash than its result");
    return 0;
}

/* Writes a body with the field `pull` to `file`. */
static int pull(earshot_bus *bus, const earshot_message *message, FILE *file)
{
    zmq_msg_t parts[OPEN_READS];
    for (int i = 0; i < OPEN_READS; i++) zmq_msg_init(&parts[i]);
    EVP_MD_CTX *digest = EVP_MD_CTX_new();
    int result = -1;
    if (!digest || !EVP_DigestInit_ex(digest, EVP_sha256(), NULL)) earshot_fail(bus, EARSHOT_FAILED, "no memory");
    else {
        bus->is_reading = 1;
        result = read_on(bus, message, file, digest, parts);
        bus->is_reading = 0;
    }
    EVP_MD_CTX_free(digest);
    for (int i = 0; i < OPEN_READS; i++) zmq_msg_close(&parts[i]);
    return result;
}

int earshot_write(earshot_bus *bus, const earshot_message *message, FILE *file)
{
    const char *path = earshot_field(message, "file");
    if (earshot_field(message, "pull")) {
        if (pull(bus, message, file) != 0) return -1;
    } else if (!path) {
        zmq_msg_t *body = (zmq_msg_t *)&message->body;
        size_t size = zmq_msg_size(body);
        if (fwrite(zmq_msg_data(body), 1, size, file) != size)
            return earshot_fail(bus, EARSHOT_FAILED, "cannot write: %s", strerror(errno));
    } else {
        FILE *source = fopen(path, "rb");
        // A broker that ends deletes its files, and its folder.
        if (!source && (errno == ENOENT || errno == ENOTDIR))
            return earshot_fail(bus, EARSHOT_NO_BROKER, "the broker has ended: ask again");
        if (!source) return earshot_fail(bus, EARSHOT_FAILED, "%s: %s", path, strerror(errno));
        char piece[65536];
        size_t size;
        int result = 0;
        while (result == 0 && (size = fread(piece, 1, sizeof piece, source)) > 0)
            if (fwrite(piece, 1, size, file) != size)
                result = earshot_fail(bus, EARSHOT_FAILED, "cannot write: %s", strerror(errno));
        if (result == 0 && ferror(source)) result = earshot_fail(bus, EARSHOT_FAILED, "%s: %s", path, strerror(errno));
        fclose(source);
        if (result != 0) return result;
    }
    return fflush(file) == 0 ? 0 : earshot_fail(bus, EARSHOT_FAILED, "cannot write: %s", strerror(errno));
}

int earshot_print(earshot_bus *bus, const earshot_message *message)
{
    const char *url = earshot_field(message, "url");
    printf("%s %s %s %s\n", message->word[0], message->word[1], message->word[2], url ? url : "-");
    return fflush(stdout) == 0 ? 0 : earshot_fail(bus, EARSHOT_FAILED, "cannot write: %s", strerror(errno));
}

int earshot_acknowledge(earshot_bus *bus, const earshot_message *message)
{
    const char *seq = earshot_field(message, "seq");
    if (!seq) return 0;
    bus->acknowledged = strtoull(seq, NULL, 10);
    return send_head(bus, "", (const char *[]){"ACK", seq, NULL});
}

int earshot_is_terminal(const earshot_message *message)
{
    return strcmp(message->verb, "RESULT") == 0 || strcmp(message->verb, "FAILED") == 0;
}

const char *earshot_field(const earshot_message *message, const char *name)
{
    size_t length = strlen(name);
    const char *found = NULL;
    for (const char *at = message->fields; *at; at = strchr(at, 0) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == ':') found = at + length + 1 + strspn(at + length + 1, " ");
    return found;
}

void earshot_free(earshot_message *message)
{
    zmq_msg_close(&message->body);
    free(message->head);
}

void earshot_close(earshot_bus *bus)
{
    if (bus->token[0]) transmit(bus, "BYE\n", NULL);
    while (bus->log) drop(&bus->log);
    while (bus->waiting) {
        struct earshot_waiting *first = bus->waiting;
        bus->waiting = first->next;
        earshot_free(&first->message);
        free(first);
    }
    drop_socket(bus);
    if (bus->context) zmq_ctx_term(bus->context);
    bus->context = NULL;
}

int earshot_report_and_close(earshot_bus *bus)
{
    fprintf(stderr, "earshot: %s\n", bus->error);
    earshot_close(bus);
    return bus->status;
}
