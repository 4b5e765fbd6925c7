#define _DEFAULT_SOURCE
#include "address.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FOLDER_BYTES = 256, KEY_FILE_BYTES = 16384, KEY_CHARACTERS = 40 };
enum { CONNECT_MS = 5000, HEARTBEAT_MS = 5000, HEARTBEAT_TIMEOUT_MS = 15000 };

/* Runtime directory of a bus for several users of the machine. */
static const char SHARED[] = "/run/earshot";

int earshot_fail(earshot_bus *bus, int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(bus->error, sizeof bus->error, format, arguments);
    va_end(arguments);
    bus->status = status;
    return -1;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Returns the address of a bus on a network, else NULL. */
static const char *address_of(const earshot_bus *bus)
{
    if (bus->is_local) return NULL;
    return bus->options.bus ? bus->options.bus : variable("EARSHOT_BUS");
}

int earshot_is_remote(const earshot_bus *bus)
{
    return address_of(bus) != NULL;
}

/* Returns whether a process listens in the directory. */
static int is_served(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s/bus", folder) >= (int)sizeof address.sun_path) return 0;
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return 0;
    int result = connect(probe, (struct sockaddr *)&address, sizeof address);
    close(probe);
    return result == 0;
}

/* Returns whether only root, or this user, can create and replace the directory. A path with links is not accepted. */
static int only_root_decides(const char *folder, int permits_sticky)
{
    char path[FOLDER_BYTES];
    snprintf(path, sizeof path, "%s", folder);
    if (path[0] != '/') return 0;
    do {
        const char *parent = dirname(path); /* in the same memory, or a constant */
        memmove(path, parent, strlen(parent) + 1);
        struct stat found;
        if (lstat(path, &found) != 0 || !S_ISDIR(found.st_mode) || (found.st_uid != 0 && found.st_uid != geteuid())) return 0;
        if ((found.st_mode & 022) && !(permits_sticky && (found.st_mode & S_ISVTX))) return 0;
    } while (strcmp(path, "/") != 0);
    return 1;
}

/* Returns whether the listener in the directory is trusted: of a directory of this user, or of one whose owner root decided. */
static int is_trusted(const char *folder, const struct stat *found)
{
    int mode = found->st_mode & 07777;
    if (!S_ISDIR(found->st_mode)) return 0;
    if (found->st_uid == geteuid()) return (mode & 077) == 0 || mode == 0755;
    return (mode & 022) == 0 && only_root_decides(folder, found->st_uid == 0);
}

/* Finds the bus in the session directory of this user, which cron and su do not name. */
static int find_session(char *folder)
{
    char user[FOLDER_BYTES];
    struct stat found;
    snprintf(user, sizeof user, "/run/user/%u", (unsigned)geteuid());
    if (lstat(user, &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 022)) return 0;
    strcat(user, "/earshot");
    if (!is_served(user)) return 0;
    strcpy(folder, user);
    return 1;
}

/* Finds the runtime directory of the bus. */
static void find_folder(char *folder)
{
    const char *named = variable("EARSHOT_RUNTIME"), *session = variable("XDG_RUNTIME_DIR");
    struct stat found;
    if (named) snprintf(folder, FOLDER_BYTES, "%s", named);
    else if (session) snprintf(folder, FOLDER_BYTES, "%s/earshot", session);
    else snprintf(folder, FOLDER_BYTES, P_tmpdir "/earshot-%u", (unsigned)geteuid());
    if (named || session || is_served(folder) || find_session(folder)) return;
    if (lstat(SHARED, &found) == 0 && is_trusted(SHARED, &found)) strcpy(folder, SHARED);
}

int earshot_no_broker(earshot_bus *bus)
{
    char folder[FOLDER_BYTES];
    const char *address = address_of(bus);
    if (address)
        return earshot_fail(bus, EARSHOT_NO_BROKER,
                            "no bus answers at %s: check the address, the key and the server key, and that its "
                            "`earshot serve` has --listen", address);
    find_folder(folder);
    return earshot_fail(bus, EARSHOT_NO_BROKER, "no broker answers in %s: start one with `earshot serve`", folder);
}

int earshot_find(earshot_bus *bus, const char *socket, char *address, size_t size)
{
    char folder[FOLDER_BYTES];
    if (earshot_is_remote(bus)) {
        snprintf(address, size, "%s", address_of(bus));
        return 0;
    }
    find_folder(folder);
    struct stat found;
    if (lstat(folder, &found) != 0) return earshot_no_broker(bus);
    if (!is_trusted(folder, &found))
        return earshot_fail(bus, EARSHOT_NO_BROKER,
                            "%s is not a directory private to this user: remove it, or set EARSHOT_RUNTIME", folder);
    snprintf(address, size, "ipc://%s/%s", folder, socket);
    return 0;
}

/* Reads the text of a line `name = "text"` of a file, with KEY_CHARACTERS characters. */
static int read_key(earshot_bus *bus, const char *path, const char *name, int is_secret, char *key)
{
    char text[KEY_FILE_BYTES], *rest = text;
    struct stat found;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t length = descriptor < 0 || fstat(descriptor, &found) != 0 ? -1 : read(descriptor, text, sizeof text - 1);
    int number = errno;
    if (descriptor >= 0) close(descriptor);
    if (length < 0) return earshot_fail(bus, EARSHOT_NO_BROKER, "cannot read the key file %s: %s", path, strerror(number));
    if (is_secret && (found.st_mode & 077))
        return earshot_fail(bus, EARSHOT_NO_BROKER,
                            "the key file %s is accessible to other users: run `chmod 600` on it", path);
    text[length] = 0;
    /* The output of `earshot key show` is a public key alone. */
    if (!is_secret && strcspn(text, " \t\r\n") == KEY_CHARACTERS && !text[KEY_CHARACTERS + strspn(text + KEY_CHARACTERS, " \t\r\n")]) {
        memcpy(key, text, KEY_CHARACTERS);
        key[KEY_CHARACTERS] = 0;
        return 0;
    }
    for (char *line; (line = strsep(&rest, "\n"));) {
        line += strspn(line, " \t");
        size_t count = strlen(name);
        if (strncmp(line, name, count) != 0) continue;
        line += count + strspn(line + count, " \t");
        if (*line != '=') continue;
        line += 1 + strspn(line + 1, " \t");
        if ((*line != '"' && *line != '\'') || strlen(line) < KEY_CHARACTERS + 2 || line[KEY_CHARACTERS + 1] != *line) break;
        memcpy(key, line + 1, KEY_CHARACTERS);
        key[KEY_CHARACTERS] = 0;
        return 0;
    }
    return earshot_fail(bus, EARSHOT_NO_BROKER, "the key file %s has no %s of 40 characters: create one with `earshot key new`",
                        path, name);
}

static int set_text(earshot_bus *bus, int option, const char *text)
{
    return zmq_setsockopt(bus->socket, option, text, strlen(text) + 1);
}

static int set_number(earshot_bus *bus, int option, int value)
{
    return zmq_setsockopt(bus->socket, option, &value, sizeof value);
}

int earshot_secure(earshot_bus *bus)
{
    const char *file = bus->options.key ? bus->options.key : variable("EARSHOT_BUS_KEY");
    const char *server = bus->options.server_key ? bus->options.server_key : variable("EARSHOT_SERVER_KEY");
    char public[KEY_CHARACTERS + 1], secret[KEY_CHARACTERS + 1], served[KEY_CHARACTERS + 1];
    if (strncmp(address_of(bus), "tcp://", 6) != 0)
        return earshot_fail(bus, EARSHOT_USAGE, "the address of the bus is invalid: use tcp://HOST:PORT");
    if (!file || !server)
        return earshot_fail(bus, EARSHOT_USAGE, "a bus on a network needs the key file of this client and the server key");
    if (read_key(bus, file, "public-key", 1, public) != 0 || read_key(bus, file, "secret-key", 1, secret) != 0) return -1;
    if (access(server, F_OK) == 0) {
        if (read_key(bus, server, "public-key", 0, served) != 0) return -1;
    } else {
        snprintf(served, sizeof served, "%s", server);
    }
    if (set_text(bus, ZMQ_CURVE_SERVERKEY, served) != 0)
        return earshot_fail(bus, EARSHOT_USAGE, "the server key is neither a key of 40 characters nor a file");
    int failed = set_text(bus, ZMQ_CURVE_PUBLICKEY, public) || set_text(bus, ZMQ_CURVE_SECRETKEY, secret)
        || set_number(bus, ZMQ_CONNECT_TIMEOUT, CONNECT_MS) || set_number(bus, ZMQ_HANDSHAKE_IVL, CONNECT_MS)
        || set_number(bus, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS) || set_number(bus, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS);
    return failed ? earshot_fail(bus, EARSHOT_FAILED, "cannot set keys: %s", zmq_strerror(zmq_errno())) : 0;
}
