#include "shim.h"
#include "loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

// ABI of all versions since 4.1 (2014). All functions used here exist since 4.2 (2016).
LOADER_LIBRARY(zmq, "libzmq.so.5", LOADER_RECOMMENDED, "network", "connections between machines, over tcp with CURVE")

#define FUNCTIONS(USE) \
    USE(errno) \
    USE(strerror) \
    USE(ctx_new) \
    USE(ctx_term) \
    USE(ctx_set) \
    USE(msg_init) \
    USE(msg_init_size) \
    USE(msg_send) \
    USE(msg_recv) \
    USE(msg_close) \
    USE(msg_move) \
    USE(msg_data) \
    USE(msg_size) \
    USE(msg_more) \
    USE(socket) \
    USE(close) \
    USE(setsockopt) \
    USE(getsockopt) \
    USE(bind) \
    USE(connect) \
    USE(send) \
    USE(socket_monitor) \
    USE(z85_encode) \
    USE(z85_decode) \
    USE(curve_keypair) \
    USE(curve_public) \
    USE(has)

// Function pointers with the types of the headers. `errno` is a macro, so each name is pasted before it is expanded.
#define POINTER(name) __typeof__(zmq_##name) *zmq_##name;
static struct { FUNCTIONS(POINTER) } library;

const char *zmqshim_load(void) {
    void *loaded = loader_open(&zmq);
    if (!loaded) return dlerror();
// POSIX lets dlsym return functions as object pointers.
#define LOOK_UP(name) \
    if (!(*(void **)&library.zmq_##name = dlsym(loaded, "zmq_" #name))) return dlerror();
    FUNCTIONS(LOOK_UP)
    return NULL;
}

// Without the library there is no other error than that of loading it.
int zmq_errno(void) { return library.zmq_errno ? library.zmq_errno() : errno; }

const char *zmq_strerror(int number) {
    return library.zmq_strerror ? library.zmq_strerror(number) : strerror(number);
}

void *zmq_ctx_new(void) { return library.zmq_ctx_new(); }

int zmq_ctx_term(void *context) { return library.zmq_ctx_term(context); }

int zmq_ctx_set(void *context, int option, int value) { return library.zmq_ctx_set(context, option, value); }

int zmq_msg_init(zmq_msg_t *message) { return library.zmq_msg_init(message); }

int zmq_msg_init_size(zmq_msg_t *message, size_t size) { return library.zmq_msg_init_size(message, size); }

int zmq_msg_send(zmq_msg_t *message, void *socket, int flags) { return library.zmq_msg_send(message, socket, flags); }

int zmq_msg_recv(zmq_msg_t *message, void *socket, int flags) { return library.zmq_msg_recv(message, socket, flags); }

int zmq_msg_close(zmq_msg_t *message) { return library.zmq_msg_close(message); }

int zmq_msg_move(zmq_msg_t *target, zmq_msg_t *source) { return library.zmq_msg_move(target, source); }

void *zmq_msg_data(zmq_msg_t *message) { return library.zmq_msg_data(message); }

size_t zmq_msg_size(const zmq_msg_t *message) { return library.zmq_msg_size(message); }

int zmq_msg_more(const zmq_msg_t *message) { return library.zmq_msg_more(message); }

void *zmq_socket(void *context, int type) { return library.zmq_socket(context, type); }

int zmq_close(void *socket) { return library.zmq_close(socket); }

int zmq_setsockopt(void *socket, int option, const void *value, size_t size) {
    return library.zmq_setsockopt(socket, option, value, size);
}

int zmq_getsockopt(void *socket, int option, void *value, size_t *size) {
    return library.zmq_getsockopt(socket, option, value, size);
}

int zmq_bind(void *socket, const char *endpoint) { return library.zmq_bind(socket, endpoint); }

int zmq_connect(void *socket, const char *endpoint) { return library.zmq_connect(socket, endpoint); }

int zmq_send(void *socket, const void *bytes, size_t count, int flags) {
    return library.zmq_send(socket, bytes, count, flags);
}

int zmq_socket_monitor(void *socket, const char *endpoint, int events) {
    return library.zmq_socket_monitor(socket, endpoint, events);
}

char *zmq_z85_encode(char *text, const uint8_t *bytes, size_t count) {
    return library.zmq_z85_encode(text, bytes, count);
}

uint8_t *zmq_z85_decode(uint8_t *bytes, const char *text) { return library.zmq_z85_decode(bytes, text); }

int zmq_curve_keypair(char *public_key, char *secret_key) { return library.zmq_curve_keypair(public_key, secret_key); }

int zmq_curve_public(char *public_key, const char *secret_key) {
    return library.zmq_curve_public(public_key, secret_key);
}

int zmq_has(const char *capability) { return library.zmq_has(capability); }
