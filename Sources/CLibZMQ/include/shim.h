// libzmq, loaded for the first context or key: only connections over tcp use it.
//
// The declarations are our own, so that no header of libzmq is needed to build. Names, types and numbers are those of the
// manual pages of libzmq 4.3 and the ABI of libzmq.so.5. ZMQ_ZERO_COPY_RECV is a draft there; libraries from 4.3.3 on
// accept it regardless of their configuration.
//
// The symbol of each function has the prefix `zmqshim_`, so that a call reaches library.c and cannot be confused with the
// library's own symbol. zmq_setsockopt(void *, size_t) is not variadic, so nothing needs a wrapper.
#ifndef EARSHOT_CLIBZMQ_SHIM_H
#define EARSHOT_CLIBZMQ_SHIM_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

/// A message, which only the library reads and writes: 64 bytes, aligned as a pointer.
typedef struct zmq_msg_t {
    void *content[64 / sizeof(void *)];
} zmq_msg_t;

int zmq_errno(void) __asm__("zmqshim_errno");
const char *zmq_strerror(int) __asm__("zmqshim_strerror");
void *zmq_ctx_new(void) __asm__("zmqshim_ctx_new");
int zmq_ctx_term(void *) __asm__("zmqshim_ctx_term");
int zmq_ctx_set(void *, int, int) __asm__("zmqshim_ctx_set");
int zmq_msg_init(zmq_msg_t *) __asm__("zmqshim_msg_init");
int zmq_msg_init_size(zmq_msg_t *, size_t) __asm__("zmqshim_msg_init_size");
int zmq_msg_send(zmq_msg_t *, void *, int) __asm__("zmqshim_msg_send");
int zmq_msg_recv(zmq_msg_t *, void *, int) __asm__("zmqshim_msg_recv");
int zmq_msg_close(zmq_msg_t *) __asm__("zmqshim_msg_close");
int zmq_msg_move(zmq_msg_t *, zmq_msg_t *) __asm__("zmqshim_msg_move");
void *zmq_msg_data(zmq_msg_t *) __asm__("zmqshim_msg_data");
size_t zmq_msg_size(const zmq_msg_t *) __asm__("zmqshim_msg_size");
int zmq_msg_more(const zmq_msg_t *) __asm__("zmqshim_msg_more");
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

// Types of sockets, zmq_socket(3).
#define ZMQ_PAIR 0
#define ZMQ_REQ 3
#define ZMQ_DEALER 5
#define ZMQ_ROUTER 6

// Options of a context, zmq_ctx_set(3).
#define ZMQ_IO_THREADS 1
#define ZMQ_MAX_SOCKETS 2
#define ZMQ_ZERO_COPY_RECV 10
#define ZMQ_BLOCKY 70

// Options of a socket, zmq_setsockopt(3) and zmq_getsockopt(3).
#define ZMQ_FD 14
#define ZMQ_EVENTS 15
#define ZMQ_LINGER 17
#define ZMQ_RECONNECT_IVL 18
#define ZMQ_BACKLOG 19
#define ZMQ_RECONNECT_IVL_MAX 21
#define ZMQ_MAXMSGSIZE 22
#define ZMQ_SNDHWM 23
#define ZMQ_RCVHWM 24
#define ZMQ_LAST_ENDPOINT 32
#define ZMQ_ROUTER_MANDATORY 33
#define ZMQ_IMMEDIATE 39
#define ZMQ_IPV6 42
#define ZMQ_CURVE_SERVER 47
#define ZMQ_CURVE_PUBLICKEY 48
#define ZMQ_CURVE_SECRETKEY 49
#define ZMQ_CURVE_SERVERKEY 50
#define ZMQ_ZAP_DOMAIN 55
#define ZMQ_ROUTER_HANDOVER 56
#define ZMQ_IPC_FILTER_PID 58
#define ZMQ_HANDSHAKE_IVL 66
#define ZMQ_HEARTBEAT_IVL 75
#define ZMQ_HEARTBEAT_TIMEOUT 77
#define ZMQ_CONNECT_TIMEOUT 79

// Flags of zmq_msg_send(3) and zmq_msg_recv(3).
#define ZMQ_DONTWAIT 1
#define ZMQ_SNDMORE 2

// Values of ZMQ_EVENTS.
#define ZMQ_POLLIN 1
#define ZMQ_POLLOUT 2

// Events of zmq_socket_monitor(3).
#define ZMQ_EVENT_CONNECTED 0x0001
#define ZMQ_EVENT_CONNECT_RETRIED 0x0004
#define ZMQ_EVENT_ACCEPTED 0x0020
#define ZMQ_EVENT_ACCEPT_FAILED 0x0040
#define ZMQ_EVENT_CLOSED 0x0080
#define ZMQ_EVENT_DISCONNECTED 0x0200
#define ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL 0x0800
#define ZMQ_EVENT_HANDSHAKE_SUCCEEDED 0x1000
#define ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL 0x2000
#define ZMQ_EVENT_HANDSHAKE_FAILED_AUTH 0x4000

/// Loads the library. To be called once, before any other function here except zmq_errno() and zmq_strerror().
///
/// Returns NULL, or a message that lives until the dynamic linker's next error.
const char *zmqshim_load(void);

#endif
