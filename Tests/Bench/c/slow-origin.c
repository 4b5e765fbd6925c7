/* slow-origin PORT MILLISECONDS BYTES: HTTP/1.1 server that answers each GET after this delay with a body of this
   size. `GET /statistics` returns JSON at once: requests begun, responses completed, bytes of bodies written, and
   requests whose client disconnected early. One thread, epoll. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 65536, HEAD_BYTES = 16384, EVENTS = 256 };

/* A connection, by its descriptor. */
typedef struct {
    long due;             /* when its answer begins; 0 if none is due */
    unsigned life;        /* tells two connections with one descriptor apart */
    int open, is_statistics;
    size_t head_size, sent, length;
    char head[HEAD_BYTES];
    char answer_head[256];
    size_t answer_head_size;
} connection;

/* Responses in the order of their due times: all have the same delay. */
typedef struct {
    int descriptor;
    unsigned life;
    long due;
} waiting;

static connection *connections[MOST];
static waiting queue[MOST];
static unsigned queue_first, queue_last;
static int poller;
static long delay;
static size_t size;
static char *body;
static char statistics[200];
static unsigned long begun, answered, bytes, left;

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void leave(int descriptor)
{
    connection *it = connections[descriptor];
    if (it->due || (it->length && !it->is_statistics)) left++;
    close(descriptor);
    it->open = 0;
    it->due = 0;
    it->length = 0;
}

static void interest(int descriptor, unsigned events)
{
    struct epoll_event event = {.events = events | EPOLLRDHUP, .data.fd = descriptor};
    epoll_ctl(poller, EPOLL_CTL_MOD, descriptor, &event);
}

static void serve(int descriptor);

/* Writes the rest of the response. */
static void answer(int descriptor)
{
    connection *it = connections[descriptor];
    while (it->sent < it->answer_head_size + it->length) {
        ssize_t count;
        if (it->sent < it->answer_head_size) {
            size_t head = it->answer_head_size - it->sent;
            count = send(descriptor, it->answer_head + it->sent, head, MSG_NOSIGNAL | MSG_MORE);
        } else {
            const char *content = it->is_statistics ? statistics : body;
            size_t at = it->sent - it->answer_head_size;
            count = send(descriptor, content + at, it->length - at, MSG_NOSIGNAL);
            if (count > 0 && !it->is_statistics) bytes += (unsigned long)count;
        }
        if (count < 0 && errno == EAGAIN) {
            interest(descriptor, EPOLLOUT);
            return;
        }
        if (count < 0) {
            leave(descriptor);
            return;
        }
        it->sent += (size_t)count;
    }
    if (!it->is_statistics) answered++;
    it->length = it->sent = 0;
    interest(descriptor, EPOLLIN);
    serve(descriptor);
}

static void begin(int descriptor)
{
    connection *it = connections[descriptor];
    it->due = 0;
    it->length = it->is_statistics ? strlen(statistics) : size;
    it->sent = 0;
    it->answer_head_size = (size_t)snprintf(it->answer_head, sizeof it->answer_head,
        "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nCache-Control: %s\r\n\r\n", it->length,
        it->is_statistics ? "no-store" : "max-age=600");
    answer(descriptor);
}

/* Takes a complete request, if there is one. */
static void serve(int descriptor)
{
    connection *it = connections[descriptor];
    char *end = it->due || it->length ? NULL : memmem(it->head, it->head_size, "\r\n\r\n", 4);
    if (!end) return;
    it->is_statistics = memcmp(it->head, "GET /statistics ", 16) == 0;
    it->head_size -= (size_t)(end + 4 - it->head);
    memmove(it->head, end + 4, it->head_size);
    if (it->is_statistics) {
        snprintf(statistics, sizeof statistics, "{\"begun\": %lu, \"answered\": %lu, \"bytes\": %lu, \"left\": %lu}\n",
            begun, answered, bytes, left);
        begin(descriptor);
        return;
    }
    begun++;
    it->due = now() + delay;
    queue[queue_last++ % MOST] = (waiting){descriptor, it->life, it->due};
}

static void read_from(int descriptor)
{
    connection *it = connections[descriptor];
    if (it->head_size == HEAD_BYTES) {
        leave(descriptor);
        return;
    }
    ssize_t count = recv(descriptor, it->head + it->head_size, HEAD_BYTES - it->head_size, 0);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
        leave(descriptor);
        return;
    }
    it->head_size += (size_t)count;
    serve(descriptor);
}

static void take_in(int listener)
{
    for (int descriptor; (descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        if (descriptor >= MOST) {
            close(descriptor);
            continue;
        }
        if (!connections[descriptor]) connections[descriptor] = calloc(1, sizeof **connections);
        connection *it = connections[descriptor];
        if (!it) abort();
        unsigned life = it->life + 1;
        memset(it, 0, offsetof(connection, head));
        it->life = life;
        it->open = 1;
        int yes = 1;
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = descriptor};
        epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &event);
    }
}

int main(int count, char **arguments)
{
    if (count != 4) return fprintf(stderr, "usage: slow-origin PORT MILLISECONDS BYTES\n"), 64;
    delay = atol(arguments[2]);
    size = (size_t)atol(arguments[3]);
    body = malloc(size + 1);
    if (!body) abort();
    memset(body, 'x', size);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(arguments[1])),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 4096) != 0)
        return perror("slow-origin"), 73;
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int pause = -1;
        while (queue_first != queue_last) {
            waiting *next = &queue[queue_first % MOST];
            connection *it = connections[next->descriptor];
            if (it->life == next->life && it->due && next->due > now()) {
                pause = (int)(next->due - now());
                if (pause < 0) pause = 0;
                break;
            }
            queue_first++;
            if (it->life == next->life && it->due == next->due) begin(next->descriptor);
        }
        int ready = epoll_wait(poller, events, EVENTS, pause);
        for (int i = 0; i < ready; i++) {
            int descriptor = events[i].data.fd;
            if (descriptor == listener) take_in(listener);
            else if (!connections[descriptor]->open) continue;
            else if (events[i].events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) leave(descriptor);
            else if (events[i].events & EPOLLOUT) answer(descriptor);
            else read_from(descriptor);
        }
    }
}
