// libzmq, loaded for the first context or key: only connections over tcp use it.
//
// Each function keeps its name in C and Swift. Its symbol has the prefix `zmqshim_`, so that a call reaches library.c
// and cannot be confused with the library's own symbol. A declaration before that of zmq.h assigns the symbol.
// zmq_setsockopt(void *, size_t) is not variadic, so nothing needs a wrapper.
// ZMQ_BUILD_DRAFT_API stays undefined, because it declares functions that Debian's library lacks.
#ifndef EARSHOT_CLIBZMQ_SHIM_H
#define EARSHOT_CLIBZMQ_SHIM_H

#include <stddef.h>
#include <stdint.h>

struct zmq_msg_t;

int zmq_errno(void) __asm__("zmqshim_errno");
const char *zmq_strerror(int) __asm__("zmqshim_strerror");
void *zmq_ctx_new(void) __asm__("zmqshim_ctx_new");
int zmq_ctx_term(void *) __asm__("zmqshim_ctx_term");
int zmq_ctx_set(void *, int, int) __asm__("zmqshim_ctx_set");
int zmq_msg_init(struct zmq_msg_t *) __asm__("zmqshim_msg_init");
int zmq_msg_init_size(struct zmq_msg_t *, size_t) __asm__("zmqshim_msg_init_size");
int zmq_msg_send(struct zmq_msg_t *, void *, int) __asm__("zmqshim_msg_send");
int zmq_msg_recv(struct zmq_msg_t *, void *, int) __asm__("zmqshim_msg_recv");
int zmq_msg_close(struct zmq_msg_t *) __asm__("zmqshim_msg_close");
int zmq_msg_move(struct zmq_msg_t *, struct zmq_msg_t *) __asm__("zmqshim_msg_move");
void *zmq_msg_data(struct zmq_msg_t *) __asm__("zmqshim_msg_data");
size_t zmq_msg_size(const struct zmq_msg_t *) __asm__("zmqshim_msg_size");
int zmq_msg_more(const struct zmq_msg_t *) __asm__("zmqshim_msg_more");
void *zmq_socket(void *, int) __asm__("zmqshim_socket");
int zmq_close(void *) __asm__("zmqshim_close");
int zmq_setsockopt(void *, int, const void *, size_t) __asm__("zmqshim_setsockopt");
int zmq_getsockopt(void *, int, void *, size_t *) __asm__("zmqshim_getsockopt");
int zmq_bind(void *, const char *) __asm__("zmqshim_bind");
int zmq_connect(void *, const char *) __asm__("zmqshim_connect");
int zmq_send(void *, const void *, size_t, int) __asm__("zmqshim_send");
int zmq_socket_monitor(void *, const char *, int) __asm__("zmqshim_socket_monitor");
char *zmq_z85_encode(char *, const uint8_t *, size_t) __asm__("zmqshim_z85_encode");
uint8_t *zmq_z85_decode(uint8_t *, const char *) __asm__("zmqshim_z85_decode");
int zmq_curve_keypair(char *, char *) __asm__("zmqshim_curve_keypair");
int zmq_curve_public(char *, const char *) __asm__("zmqshim_curve_public");
int zmq_has(const char *) __asm__("zmqshim_has");

#include <zmq.h>

/* zmq_ctx_set(3). A draft option in the header; libraries from 4.3.3 on accept it regardless of their configuration. */
#ifndef ZMQ_ZERO_COPY_RECV
#define ZMQ_ZERO_COPY_RECV 10
#endif

/// Loads the library. To be called once, before any other function here except zmq_errno() and zmq_strerror().
///
/// Returns NULL, or a message that lives until the dynamic linker's next error.
const char *zmqshim_load(void);

#endif
