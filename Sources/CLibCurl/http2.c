// accept4
#define _GNU_SOURCE
#include "shim.h"
#include "loaded.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

// libcurl reports a stream that was reset without an error as complete; only nghttp2 knows the difference. This file
// therefore defines some functions of nghttp2 that libcurl calls: the dynamic linker prefers a program's exported
// symbols to those of loaded libraries. They call nghttp2's originals.

// Common initial fields of nghttp2_frame, and of its variant for DATA. Stable since nghttp2 1.0 (2015).
typedef struct {
    size_t length;
    int32_t stream_id;
    uint8_t type;
    uint8_t flags;
    uint8_t reserved;
} frame_head;

typedef struct {
    frame_head head;
    // Length of the padding in bytes, including its length byte.
    size_t padding;
} data_frame;

enum { frame_data = 0, frame_headers = 1, frame_reset = 3, flag_end_stream = 1 };
enum { error_flooded = -904, enhance_your_calm = 11 };

typedef int (*frame_callback)(void *session, const frame_head *frame, void *context);

#define FUNCTIONS(USE) \
    USE(void, nghttp2_session_callbacks_set_on_frame_recv_callback, (void *callbacks, frame_callback callback)) \
    USE(void *, nghttp2_session_get_stream_user_data, (void *session, int32_t stream_id)) \
    USE(int, nghttp2_session_terminate_session, (void *session, uint32_t error)) \
    USE(ssize_t, nghttp2_session_mem_recv, (void *session, const uint8_t *input, size_t length))
// Replaces nghttp2_session_mem_recv since nghttp2 1.60.
#define NEWER_FUNCTIONS(USE) \
    USE(ptrdiff_t, nghttp2_session_mem_recv2, (void *session, const uint8_t *input, size_t length))

#define POINTER(result, name, parameters) result (*name) parameters;
static struct { FUNCTIONS(POINTER) NEWER_FUNCTIONS(POINTER) } nghttp2;

// libcurl's callback for connections to servers. The callback for proxies is registered later and stays unchanged.
static frame_callback libcurl_frame_arrived;
static curlshim_stream_note stream_noted;

// libcurl 7.88 reads a connection until it has bytes for the current transfer, or until no input is left. A server that
// sends other frames as fast as they are parsed would block it. A connection is therefore closed after this much
// processor time without a frame of a response. A large body of a cancelled transfer, at most a window of 32 MiB, takes
// a third of that.
static const int64_t most_idle_nanoseconds = 100 * 1000 * 1000;
// Input below which the clock is not read, in bytes.
enum { unmetered_bytes = 256 * 1024 };

// Input since the last frame of a response, or since the owner last entered libcurl.
static _Thread_local struct {
    size_t bytes;
    // Time at which `bytes` reached unmetered_bytes; 0 before.
    int64_t began;
} idle_input;
static int is_metered;

void curlshim_meter_anew(void) { idle_input.bytes = 0; idle_input.began = 0; }

static int64_t processor_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// Closes the session if it spends too much time on frames without a response. Returns whether it does.
static int ends_flood(void *session, size_t length) {
    is_metered = 1;
    idle_input.bytes += length;
    if (idle_input.bytes < unmetered_bytes) return 0;
    int64_t now = processor_time();
    if (!idle_input.began) idle_input.began = now;
    if (now - idle_input.began < most_idle_nanoseconds) return 0;
    nghttp2.nghttp2_session_terminate_session(session, enhance_your_calm);
    return 1;
}

__attribute__((visibility("default"), used)) ssize_t nghttp2_session_mem_recv(
    void *session, const uint8_t *input, size_t length) {
    return ends_flood(session, length) ? error_flooded : nghttp2.nghttp2_session_mem_recv(session, input, length);
}

__attribute__((visibility("default"), used)) ptrdiff_t nghttp2_session_mem_recv2(
    void *session, const uint8_t *input, size_t length) {
    return ends_flood(session, length) ? error_flooded : nghttp2.nghttp2_session_mem_recv2(session, input, length);
}

static int frame_arrived(void *session, const frame_head *frame, void *context) {
    if (frame->stream_id != 0 && (frame->type <= frame_headers || frame->type == frame_reset)) {
        // Transfer of the stream; NULL after libcurl has closed it.
        CURL *handle = nghttp2.nghttp2_session_get_stream_user_data(session, frame->stream_id);
        size_t bytes = frame->type == frame_data ? frame->length - ((const data_frame *)frame)->padding : 0;
        int is_end = frame->type != frame_reset && frame->flags & flag_end_stream;
        if (handle && (bytes > 0 || frame->type == frame_headers)) curlshim_meter_anew();
        if (handle) stream_noted(handle, bytes, is_end);
    }
    return libcurl_frame_arrived(session, frame, context);
}

__attribute__((visibility("default"), used)) void nghttp2_session_callbacks_set_on_frame_recv_callback(
    void *callbacks, frame_callback callback) {
    if (!libcurl_frame_arrived) libcurl_frame_arrived = callback;
    nghttp2.nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks, callback == libcurl_frame_arrived ? frame_arrived : callback);
}

// Self-check: a request over an abstract socket to a canned response.

static const unsigned char canned_response[] = {
    0, 0, 0, 4, 0, 0, 0, 0, 0,                    // SETTINGS
    0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88,              // HEADERS of stream 1: status 200
    0, 0, 2, 0, 0, 0, 0, 0, 1, 'o', 'k',          // DATA
    0, 0, 4, 0, 9, 0, 0, 0, 1, 1, 'o', 'k', 0,    // DATA, one byte of padding, END_STREAM
};
enum { canned_bytes = 4 };

typedef struct {
    int listener;
    int server;
    size_t received;
    size_t noted;
    int ended;
} check;

// Listens at an address chosen by the kernel; 0 on failure.
static int check_listens(check *current, struct sockaddr_un *address) {
    socklen_t length = sizeof *address;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    current->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return current->listener >= 0
        && bind(current->listener, (struct sockaddr *)address, sizeof address->sun_family) == 0
        && listen(current->listener, 1) == 0
        && getsockname(current->listener, (struct sockaddr *)address, &length) == 0;
}

// Sends the response: libcurl is connected, and about to send its request.
static int check_request(void *context, char *address, char *own_address, int port, int own_port) {
    (void)address, (void)own_address, (void)port, (void)own_port;
    check *current = context;
    current->server = accept4(current->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (current->server < 0) return CURL_PREREQFUNC_ABORT;
    ssize_t sent = send(current->server, canned_response, sizeof canned_response, MSG_NOSIGNAL);
    return sent == sizeof canned_response ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

static size_t check_received(char *bytes, size_t size, size_t count, void *context) {
    (void)bytes;
    ((check *)context)->received += size * count;
    return size * count;
}

static void check_noted(CURL *handle, size_t bytes, int is_end) {
    check *current = NULL;
    curlshim_loaded.easy_getinfo(handle, CURLINFO_PRIVATE, (char **)&current);
    if (!current) return;
    current->noted += bytes;
    current->ended = current->ended || is_end;
}

static int passes_check(void) {
    CURLcode (*set)(CURL *, CURLoption, ...) = curlshim_loaded.easy_setopt;
    check current = {.listener = -1, .server = -1};
    struct sockaddr_un address;
    CURL *handle = NULL;
    int passes = check_listens(&current, &address)
        && (handle = curlshim_loaded.easy_init()) != NULL
        && set(handle, CURLOPT_URL, "http://localhost/") == CURLE_OK
        && set(handle, CURLOPT_ABSTRACT_UNIX_SOCKET, address.sun_path + 1) == CURLE_OK
        && set(handle, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE) == CURLE_OK
        && set(handle, CURLOPT_PROXY, "") == CURLE_OK
        && set(handle, CURLOPT_NOSIGNAL, 1L) == CURLE_OK
        && set(handle, CURLOPT_TIMEOUT_MS, 1000L) == CURLE_OK
        && set(handle, CURLOPT_PREREQFUNCTION, check_request) == CURLE_OK
        && set(handle, CURLOPT_PREREQDATA, &current) == CURLE_OK
        && set(handle, CURLOPT_WRITEFUNCTION, check_received) == CURLE_OK
        && set(handle, CURLOPT_WRITEDATA, &current) == CURLE_OK
        && set(handle, CURLOPT_PRIVATE, &current) == CURLE_OK
        && curlshim_loaded.easy_perform(handle) == CURLE_OK;
    if (handle) curlshim_loaded.easy_cleanup(handle);
    if (current.listener >= 0) close(current.listener);
    if (current.server >= 0) close(current.server);
    return passes && current.received == canned_bytes && current.noted == canned_bytes && current.ended && is_metered;
}

int curlshim_follow_streams(curlshim_stream_note note) {
#define LOOK_UP(result, name, parameters) \
    if (!(*(void **)&nghttp2.name = dlsym(curlshim_loaded.library, #name))) return 0;
    FUNCTIONS(LOOK_UP)
#define LOOK_UP_NEWER(result, name, parameters) *(void **)&nghttp2.name = dlsym(curlshim_loaded.library, #name);
    NEWER_FUNCTIONS(LOOK_UP_NEWER)
    stream_noted = check_noted;
    int passes = passes_check();
    stream_noted = note;
    return passes;
}
