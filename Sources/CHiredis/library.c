#include "shim.h"

#include <dlfcn.h>

// The layout of a reader differs between versions, so only the version of the headers is loaded.
#define TEXT(value) #value
#define EXPANDED_TEXT(value) TEXT(value)
static const char library_name[] = "libhiredis.so." EXPANDED_TEXT(HIREDIS_SONAME);

#define FUNCTIONS(USE) \
    USE(redisReaderCreateWithFunctions) \
    USE(redisReaderCreate) \
    USE(redisReaderFree) \
    USE(redisReaderFeed) \
    USE(redisReaderGetReply) \
    USE(freeReplyObject) \
    USE(redisFormatCommandArgv) \
    USE(redisFreeCommand)

// Function pointers with the types of the headers.
#define POINTER(name) __typeof__(name) *name;
static struct { FUNCTIONS(POINTER) } library;

#if HIREDIS_MAJOR < 1
typedef int element_count;
#else
typedef size_t element_count;
#endif

static redisReplyObjectFunctions bounded;
static void *(*create_array)(const redisReadTask *, element_count);

static void *create_bounded_array(const redisReadTask *task, element_count elements) {
    return elements > hiredis_most_elements ? NULL : create_array(task, elements);
}

const char *hiredis_load(void) {
    void *loaded = dlopen(library_name, RTLD_LAZY | RTLD_LOCAL);
    if (!loaded) return dlerror();
// POSIX lets dlsym return functions as object pointers.
#define LOOK_UP(name) \
    if (!(*(void **)&library.name = dlsym(loaded, #name))) return dlerror();
    FUNCTIONS(LOOK_UP)
    // The functions that create replies are not exported. A reader has them.
    redisReader *reader = library.redisReaderCreate();
    if (!reader) return "no memory";
    bounded = *reader->fn;
    create_array = bounded.createArray;
    bounded.createArray = create_bounded_array;
    library.redisReaderFree(reader);
    return NULL;
}

const char *hiredis_version(void) { return EXPANDED_TEXT(HIREDIS_SONAME); }

redisReader *hiredis_reader(void) { return library.redisReaderCreateWithFunctions(&bounded); }

void hiredis_reader_free(redisReader *reader) { library.redisReaderFree(reader); }

int hiredis_reader_feed(redisReader *reader, const void *bytes, size_t count) {
    return library.redisReaderFeed(reader, bytes, count);
}

int hiredis_reader_next(redisReader *reader, redisReply **reply) {
    void *next = NULL;
    int code = library.redisReaderGetReply(reader, &next);
    *reply = next;
    return code;
}

void hiredis_reply_free(redisReply *reply) { library.freeReplyObject(reply); }

const redisReply *hiredis_reply_element(const redisReply *reply, size_t index) { return reply->element[index]; }

long hiredis_format(char **command, int count, const char **arguments, const size_t *lengths) {
    return (long)library.redisFormatCommandArgv(command, count, arguments, lengths);
}

void hiredis_command_free(char *command) { library.redisFreeCommand(command); }
