// zmq_errno() is a plain function, and zmq_setsockopt(void *, size_t) is not variadic, so nothing needs a wrapper.
// ZMQ_BUILD_DRAFT_API stays undefined, because it declares functions that Debian's library lacks.
#include <zmq.h>

/* zmq_ctx_set(3). A draft option in the header; libraries from 4.3.3 on accept it regardless of their configuration. */
#ifndef ZMQ_ZERO_COPY_RECV
#define ZMQ_ZERO_COPY_RECV 10
#endif
