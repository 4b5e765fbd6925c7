// zmq_errno() is a plain function and every option goes through zmq_setsockopt(void *, size_t): nothing variadic here.
// ZMQ_BUILD_DRAFT_API stays undefined: it would declare functions that Debian's library does not have.
#include <zmq.h>
