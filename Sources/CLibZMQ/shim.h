// zmq_errno() is a plain function and every option goes through zmq_setsockopt(void *, size_t): nothing variadic here.
// ZMQ_BUILD_DRAFT_API stays undefined: it would declare functions that Debian's library does not have.
#include <zmq.h>

/* zmq_ctx_set(3). The header has it among the drafts; the libraries 4.3.3 and later take it whatever they were built with. */
#ifndef ZMQ_ZERO_COPY_RECV
#define ZMQ_ZERO_COPY_RECV 10
#endif
