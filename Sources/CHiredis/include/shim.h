// hiredis, loaded for the first connection to a server: only brokers of a cluster use it.
//
// Each wrapper has the prefix `hiredis_` and hides the differences between the versions 0.14 and 1.
// redisFormatCommandArgv is not variadic, so nothing needs a wrapper for its arguments.
//
// The functions for asynchronous connections are not used: they stop the process with assert() if a server sends a reply without a
// command, or a message of a subscription in an unknown form.
#ifndef EARSHOT_CHIREDIS_SHIM_H
#define EARSHOT_CHIREDIS_SHIM_H

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

/// Loads the library. To be called once, before any other function here.
///
/// Returns NULL, or a message that lives until the dynamic linker's next error.
const char *hiredis_load(void);

/// Version in the name of the library, of its interface: hiredis has no function for its own. Needs no loading.
const char *hiredis_version(void);

/// Maximum number of elements in one array of a reply.
enum { hiredis_most_elements = 4096 };

/// Creates a reader that refuses larger arrays, as if it had no memory for them. NULL without memory.
redisReader *hiredis_reader(void);
void hiredis_reader_free(redisReader *reader);

/// Returns 0, or -1 after an error; the reader is useless then.
int hiredis_reader_feed(redisReader *reader, const void *bytes, size_t count);

/// Takes the next complete reply; NULL in `*reply` if there is none. Returns 0, or -1 after an error.
int hiredis_reader_next(redisReader *reader, redisReply **reply);
void hiredis_reply_free(redisReply *reply);

/// Element of an array, which is not freed on its own.
const redisReply *hiredis_reply_element(const redisReply *reply, size_t index);

/// Encodes a command. Returns its length, or -1 without memory.
long hiredis_format(char **command, int count, const char **arguments, const size_t *lengths);
void hiredis_command_free(char *command);

#endif
