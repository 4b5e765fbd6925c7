#define _DEFAULT_SOURCE
#include "earshot.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GREETING_MS = 3000, SILENCE_MS = 5000, LINGER_MS = 500 };

static int fail(earshot_bus *bus, int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(bus->error, sizeof bus->error, format, arguments);
    va_end(arguments);
    bus->status = status;
    return -1;
}

/* Returns whether `text` is valid as an operand. A line feed in it would inject fields into the message. */
static int is_word(const char *text)
{
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 127) return 0;
    return *text != 0;
}

/* Sends a message: the words as its first line, the fields, and the body if it is not NULL. NULL ends the words. */
static int say_with(earshot_bus *bus, const char *fields, const char *const words[], const char *body)
{
    size_t length = strlen(fields);
    for (int i = 0; words[i]; i++) {
        if (!is_word(words[i]))
            return fail(bus, EARSHOT_USAGE, "a URL or name is empty, or has a space or control character in it");
        length += strlen(words[i]) + 1;
    }
    char *head = malloc(length + 1);
    if (!head) return fail(bus, EARSHOT_FAILED, "%s", strerror(errno));
    char *end = head;
    for (int i = 0; words[i]; i++) end = stpcpy(stpcpy(end, words[i]), words[i + 1] ? " " : "\n");
    strcpy(end, fields);
    int sent = zmq_send(bus->socket, head, length, body ? ZMQ_SNDMORE : 0);
    if (sent >= 0 && body) sent = zmq_send(bus->socket, body, strlen(body), 0);
    free(head);
    return sent < 0 ? fail(bus, EARSHOT_FAILED, "cannot send: %s", zmq_strerror(zmq_errno())) : 0;
}

static int say(earshot_bus *bus, const char *fields, const char *const words[])
{
    return say_with(bus, fields, words, NULL);
}

/* Returns 1 if a message can be received, and 0 after a time-out. */
static int await(earshot_bus *bus, long milliseconds)
{
    zmq_pollitem_t item = {.socket = bus->socket, .events = ZMQ_POLLIN};
    int ready;
    do ready = zmq_poll(&item, 1, milliseconds);
    while (ready < 0 && zmq_errno() == EINTR);
    return ready < 0 ? fail(bus, EARSHOT_FAILED, "cannot poll: %s", zmq_strerror(zmq_errno())) : ready;
}

static int set(earshot_bus *bus, int option, int value)
{
    return zmq_setsockopt(bus->socket, option, &value, sizeof value);
}

/* Finds the runtime directory of the bus. */
static void find_folder(char *folder, size_t size)
{
    const char *named = getenv("EARSHOT_RUNTIME"), *session = getenv("XDG_RUNTIME_DIR");
    if (named && *named) snprintf(folder, size, "%s", named);
    else if (session && *session) snprintf(folder, size, "%s/earshot", session);
    else snprintf(folder, size, P_tmpdir "/earshot-%u", (unsigned)geteuid());
}

static int no_broker(earshot_bus *bus, const char *folder)
{
    return fail(bus, EARSHOT_NO_BROKER, "no broker answers in %s: start one with `earshot serve`", folder);
}

/* Fails unless the directory is private to this user. In /tmp any user can create one and would receive requests. */
static int look_at(earshot_bus *bus, const char *folder)
{
    struct stat found;
    if (lstat(folder, &found) != 0) return no_broker(bus, folder);
    if (S_ISDIR(found.st_mode) && found.st_uid == geteuid() && (found.st_mode & 077) == 0) return 0;
    return fail(bus, EARSHOT_NO_BROKER,
                "%s is not a directory private to this user: remove it, or set EARSHOT_RUNTIME", folder);
}

/* Creates the socket. */
static int make_socket(earshot_bus *bus)
{
    memset(bus, 0, sizeof *bus);
    bus->context = zmq_ctx_new();
    bus->socket = bus->context ? zmq_socket(bus->context, ZMQ_DEALER) : NULL;
    if (!bus->socket || set(bus, ZMQ_LINGER, LINGER_MS) != 0)
        return fail(bus, EARSHOT_FAILED, "no socket: %s", zmq_strerror(zmq_errno()));
    return 0;
}

/* Connects to the endpoint, sends the first message, and waits for the answer. */
static int greet(earshot_bus *bus, const char *endpoint, const char *fields, const char *const words[])
{
    char folder[256], address[300];
    find_folder(folder, sizeof folder);
    if (look_at(bus, folder) != 0) return -1;
    snprintf(address, sizeof address, "ipc://%s/%s", folder, endpoint);
    if (zmq_connect(bus->socket, address) != 0)
        return fail(bus, EARSHOT_NO_BROKER, "cannot connect to %s: %s", address, zmq_strerror(zmq_errno()));
    if (say(bus, fields, words) != 0) return zmq_errno() == EAGAIN ? no_broker(bus, folder) : -1;
    int ready = await(bus, GREETING_MS);
    if (ready == 0) return no_broker(bus, folder);
    earshot_message answer;
    if (ready < 0 || earshot_receive(bus, &answer) != 0) return -1;
    earshot_free(&answer);
    return 0;
}

int earshot_open(earshot_bus *bus)
{
    return make_socket(bus) == 0 ? greet(bus, "bus", "", (const char *[]){"HELLO", "EAR/1", NULL}) : -1;
}

int earshot_register(earshot_bus *bus, const char *scheme, int slots)
{
    /* A worker's socket serves one connection, so that messages for one broker never reach the next one. Without a
       connection a send fails, and earshot_await detects that. */
    if (make_socket(bus) != 0) return -1;
    if (set(bus, ZMQ_RECONNECT_IVL, -1) != 0 || set(bus, ZMQ_IMMEDIATE, 1) != 0
        || set(bus, ZMQ_SNDTIMEO, GREETING_MS) != 0)
        return fail(bus, EARSHOT_FAILED, "no socket: %s", zmq_strerror(zmq_errno()));
    char fields[200];
    snprintf(fields, sizeof fields, "slots: %d\nschemes: %s\npid: %ld\ndrain: yes\n", slots, scheme, (long)getpid());
    return greet(bus, "work", fields, (const char *[]){"READY", "EARW/1", NULL});
}

int earshot_await(earshot_bus *bus, int descriptor, int milliseconds)
{
    int events, own;
    size_t size = sizeof events;
    if (zmq_getsockopt(bus->socket, ZMQ_EVENTS, &events, &size) != 0
        || zmq_getsockopt(bus->socket, ZMQ_FD, &own, &size) != 0)
        return fail(bus, EARSHOT_FAILED, "cannot poll: %s", zmq_strerror(zmq_errno()));
    if (events & ZMQ_POLLIN) return 1;
    if (!(events & ZMQ_POLLOUT)) return fail(bus, EARSHOT_NO_BROKER, "the broker is gone");
    struct pollfd items[] = {{.fd = own, .events = POLLIN}, {.fd = descriptor, .events = POLLIN}};
    if (poll(items, 2, milliseconds) < 0 && errno != EINTR)
        return fail(bus, EARSHOT_FAILED, "cannot poll: %s", strerror(errno));
    return 0;
}

int earshot_done(earshot_bus *bus, const char *attempt, const char *content_type, const char *text)
{
    char fields[300];
    snprintf(fields, sizeof fields, "length: %zu\n\ncontent-type: %s\n", strlen(text), content_type);
    return say_with(bus, fields, (const char *[]){"DONE", attempt, "200", NULL}, text);
}

int earshot_failed(earshot_bus *bus, const char *attempt, const char *code, const char *detail)
{
    char fields[300];
    snprintf(fields, sizeof fields, "detail: %s\n", detail);
    return say(bus, fields, (const char *[]){"FAILED", attempt, code, NULL});
}

int earshot_pong(earshot_bus *bus)
{
    return say(bus, "", (const char *[]){"PONG", NULL});
}

int earshot_bye(earshot_bus *bus)
{
    return say(bus, "", (const char *[]){"BYE", NULL});
}

int earshot_fetch(earshot_bus *bus, const char *handler, const char *request, const char *url, const char *fields)
{
    return say(bus, fields ? fields : "", (const char *[]){"FETCH", handler, request, url, NULL});
}

int earshot_remove(earshot_bus *bus, const char *handler)
{
    return say(bus, "", (const char *[]){"REMOVE", handler, NULL});
}

int earshot_cancel(earshot_bus *bus, const char *handler, const char *request)
{
    return say(bus, "", (const char *[]){"CANCEL", handler, request, NULL});
}

int earshot_subscribe(earshot_bus *bus, const char *pattern)
{
    if (say(bus, "", (const char *[]){"SUBSCRIBE", pattern, NULL}) != 0) return -1;
    /* SUBSCRIBE has no answer. The answer to a later QUERY shows that the subscription is in effect. */
    return say(bus, "", (const char *[]){"QUERY", "ping", NULL});
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

static int receive(earshot_bus *bus, earshot_message *message)
{
    /* A broker that ends sends no message, so a QUERY checks that it is alive after some silence. */
    int ready = await(bus, SILENCE_MS);
    if (ready == 0) {
        if (say(bus, "", (const char *[]){"QUERY", "ping", NULL}) != 0) return -1;
        ready = await(bus, SILENCE_MS);
    }
    if (ready == 0) return fail(bus, EARSHOT_NO_BROKER, "the broker is gone: start one with `earshot serve`");
    if (ready < 0) return -1;

    zmq_msg_t frame;
    zmq_msg_init(&frame);
    zmq_msg_init(&message->body);
    message->head = NULL;
    if (zmq_msg_recv(&frame, bus->socket, 0) < 0
        || (zmq_msg_more(&frame) && zmq_msg_recv(&message->body, bus->socket, 0) < 0)) {
        fail(bus, EARSHOT_FAILED, "cannot receive: %s", zmq_strerror(zmq_errno()));
    } else {
        size_t length = zmq_msg_size(&frame);
        message->head = calloc(length + 2, 1); /* two zeros: the end of the last field and the end of the list */
        if (message->head) memcpy(message->head, zmq_msg_data(&frame), length);
        else fail(bus, EARSHOT_FAILED, "no memory");
    }
    zmq_msg_close(&frame);
    if (!message->head) {
        zmq_msg_close(&message->body);
        return -1;
    }
    parse(message);
    if (strcmp(message->verb, "ERROR") != 0) return 0;
    if (strcmp(message->word[0], "hello-required") == 0) {
        fail(bus, EARSHOT_NO_BROKER, "the broker has ended and another one is there: ask again");
    } else {
        const char *detail = earshot_field(message, "detail");
        fail(bus, EARSHOT_FAILED, "%s: %s", message->word[0], detail ? detail : "");
    }
    earshot_free(message);
    return -1;
}

int earshot_receive(earshot_bus *bus, earshot_message *message)
{
    for (;;) {
        if (receive(bus, message) != 0) return -1;
        const char *seq = earshot_is_terminal(message) ? earshot_field(message, "seq") : NULL;
        if (!seq) return 0;
        unsigned long long number = strtoull(seq, NULL, 10);
        if (number > bus->heard) {
            bus->heard = number;
            return 0;
        }
        earshot_free(message); /* a redelivered terminal, with the same number as before */
    }
}

int earshot_write(earshot_bus *bus, const earshot_message *message, FILE *file)
{
    const char *path = earshot_field(message, "file");
    if (!path) {
        zmq_msg_t *body = (zmq_msg_t *)&message->body;
        size_t size = zmq_msg_size(body);
        if (fwrite(zmq_msg_data(body), 1, size, file) != size)
            return fail(bus, EARSHOT_FAILED, "cannot write: %s", strerror(errno));
    } else {
        FILE *source = fopen(path, "rb");
        if (!source) return fail(bus, EARSHOT_FAILED, "%s: %s", path, strerror(errno));
        char piece[65536];
        size_t size;
        int result = 0;
        while (result == 0 && (size = fread(piece, 1, sizeof piece, source)) > 0)
            if (fwrite(piece, 1, size, file) != size)
                result = fail(bus, EARSHOT_FAILED, "cannot write: %s", strerror(errno));
        if (result == 0 && ferror(source)) result = fail(bus, EARSHOT_FAILED, "%s: %s", path, strerror(errno));
        fclose(source);
        if (result != 0) return result;
    }
    return fflush(file) == 0 ? 0 : fail(bus, EARSHOT_FAILED, "cannot write: %s", strerror(errno));
}

int earshot_print(earshot_bus *bus, const earshot_message *message)
{
    const char *url = earshot_field(message, "url");
    printf("%s %s %s %s\n", message->word[0], message->word[1], message->word[2], url ? url : "-");
    return fflush(stdout) == 0 ? 0 : fail(bus, EARSHOT_FAILED, "cannot write: %s", strerror(errno));
}

int earshot_acknowledge(earshot_bus *bus, const earshot_message *message)
{
    const char *seq = earshot_field(message, "seq");
    return seq ? say(bus, "", (const char *[]){"ACK", seq, NULL}) : 0;
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
    if (bus->socket) zmq_close(bus->socket);
    if (bus->context) zmq_ctx_term(bus->context);
    bus->socket = bus->context = NULL;
}

int earshot_give_up(earshot_bus *bus)
{
    fprintf(stderr, "earshot: %s\n", bus->error);
    earshot_close(bus);
    return bus->status;
}
