/* Common part of the minimal bus: sockets without high-water marks, in one folder. */
#ifndef BARE_H
#define BARE_H

#include <stdio.h>
#include <zmq.h>

/* Body of each response, the same as that of bench-worker. */
enum { BARE_BODY_BYTES = 64 };

static inline void *bare_socket(void *context, int type)
{
    void *socket = zmq_socket(context, type);
    int none = 0;
    zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    return socket;
}

static inline const char *bare_endpoint(const char *folder, const char *name)
{
    static char endpoint[200];
    snprintf(endpoint, sizeof endpoint, "ipc://%s/%s", folder, name);
    return endpoint;
}

static inline int bare_connect(void *socket, const char *folder, const char *name)
{
    return zmq_connect(socket, bare_endpoint(folder, name));
}

static inline int bare_bind(void *socket, const char *folder, const char *name)
{
    return zmq_bind(socket, bare_endpoint(folder, name));
}

#endif
