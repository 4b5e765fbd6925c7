#include "shim.h"
#include "loaded.h"
#include "loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stddef.h>

// ABI of all versions since 7.16 (2006). All functions used here exist since 7.63 (2018).
LOADER_LIBRARY(curl, "libcurl.so.4", LOADER_REQUIRED, "http", "transfers by http, https and other schemes")

#define FUNCTIONS(USE) \
    USE(curl_global_init) \
    USE(curl_slist_append) \
    USE(curl_slist_free_all) \
    USE(curl_url) \
    USE(curl_url_cleanup) \
    USE(curl_url_set) \
    USE(curl_easy_init) \
    USE(curl_easy_cleanup) \
    USE(curl_easy_perform) \
    USE(curl_easy_reset) \
    USE(curl_easy_setopt) \
    USE(curl_easy_getinfo) \
    USE(curl_easy_pause) \
    USE(curl_multi_init) \
    USE(curl_multi_cleanup) \
    USE(curl_multi_add_handle) \
    USE(curl_multi_remove_handle) \
    USE(curl_multi_socket_action) \
    USE(curl_multi_info_read) \
    USE(curl_multi_setopt)

// Function pointers with the types of the headers, under the same names.
#define POINTER(name) __typeof__(name) *name;
static struct { FUNCTIONS(POINTER) } library;
struct curlshim_loaded curlshim_loaded;

// Functions of the OpenSSL that libcurl uses, which created the sessions.
#define TLS_FUNCTIONS(USE) \
    USE(CRYPTO_get_ex_new_index) \
    USE(SSL_get0_alpn_selected) \
    USE(SSL_get_ex_data) \
    USE(SSL_has_pending) \
    USE(SSL_set_ex_data) \
    USE(SSL_set_info_callback)

static struct { TLS_FUNCTIONS(POINTER) } tls_library;
// Index of context and number in each session's extra data; negative if libcurl does not use OpenSSL.
static int tls_context = -1;
static int tls_number = -1;
static curlshim_alert tls_alert;

static void load_tls(void *loaded) {
// A handle's symbols include those of the libraries that it depends on.
#define LOOK_UP_TLS(name) \
    if (!(*(void **)&tls_library.name = dlsym(loaded, #name))) return;
    TLS_FUNCTIONS(LOOK_UP_TLS)
    tls_context = tls_library.CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL, 0, NULL, NULL, NULL, NULL);
    tls_number = tls_library.CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL, 0, NULL, NULL, NULL, NULL);
}

const char *curlshim_load(curlshim_alert alert) {
    void *loaded = loader_open(&curl);
    if (!loaded) return dlerror();
// POSIX lets dlsym return functions as object pointers.
#define LOOK_UP(name) \
    if (!(*(void **)&library.name = dlsym(loaded, #name))) return dlerror();
    FUNCTIONS(LOOK_UP)
    curlshim_loaded = (struct curlshim_loaded){
        .library = loaded,
        .easy_init = library.curl_easy_init,
        .easy_cleanup = library.curl_easy_cleanup,
        .easy_perform = library.curl_easy_perform,
        .easy_setopt = library.curl_easy_setopt,
        .easy_getinfo = library.curl_easy_getinfo,
    };
    tls_alert = alert;
    load_tls(loaded);
    return NULL;
}

void *curlshim_easy_tls(CURL *handle) {
    struct curl_tlssessioninfo *session = NULL;
    if (tls_context < 0 || tls_number < 0) return NULL;
    if ((library.curl_easy_getinfo)(handle, CURLINFO_TLS_SSL_PTR, &session) != CURLE_OK || !session) return NULL;
    return session->backend == CURLSSLBACKEND_OPENSSL ? session->internals : NULL;
}

static void tls_informed(const SSL *tls, int where, int value) {
    if (where != SSL_CB_READ_ALERT) return;
    void *context = tls_library.SSL_get_ex_data(tls, tls_context);
    if (context) tls_alert(context, (unsigned long)tls_library.SSL_get_ex_data(tls, tls_number), value & 0xff);
}

void curlshim_tls_follow(void *tls, void *context, unsigned long number) {
    if (tls_library.SSL_set_ex_data(tls, tls_number, (void *)number) != 1) return;
    if (tls_library.SSL_set_ex_data(tls, tls_context, context) != 1) return;
    tls_library.SSL_set_info_callback(tls, tls_informed);
}

int curlshim_tls_speaks_http2(const void *tls) {
    const unsigned char *name = NULL;
    unsigned int length = 0;
    tls_library.SSL_get0_alpn_selected(tls, &name, &length);
    return length == 2 && name[0] == 'h' && name[1] == '2';
}

int curlshim_tls_has_pending(const void *tls) { return tls_library.SSL_has_pending(tls); }

int curlshim_is_quiet(curl_socket_t descriptor) {
    char byte;
    return recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

int curlshim_local_port(curl_socket_t descriptor) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getsockname(descriptor, (struct sockaddr *)&address, &length) != 0) return -1;
    if (address.ss_family == AF_INET) return ntohs(((const struct sockaddr_in *)&address)->sin_port);
    if (address.ss_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)&address)->sin6_port);
    return -1;
}

CURLcode curlshim_global_init(long flags) { return library.curl_global_init(flags); }

struct curl_slist *curlshim_slist_append(struct curl_slist *list, const char *string) {
    return library.curl_slist_append(list, string);
}

void curlshim_slist_free_all(struct curl_slist *list) { library.curl_slist_free_all(list); }

CURLU *curlshim_url(void) { return library.curl_url(); }

void curlshim_url_cleanup(CURLU *handle) { library.curl_url_cleanup(handle); }

CURLUcode curlshim_url_set(CURLU *handle, CURLUPart part, const char *value, unsigned int flags) {
    return library.curl_url_set(handle, part, value, flags);
}

CURL *curlshim_easy_init(void) { return library.curl_easy_init(); }

void curlshim_easy_cleanup(CURL *handle) { library.curl_easy_cleanup(handle); }

void curlshim_easy_reset(CURL *handle) { library.curl_easy_reset(handle); }

CURLcode curlshim_easy_pause(CURL *handle, int directions) { return library.curl_easy_pause(handle, directions); }

CURLM *curlshim_multi_init(void) { return library.curl_multi_init(); }

CURLMcode curlshim_multi_cleanup(CURLM *handle) { return library.curl_multi_cleanup(handle); }

CURLMcode curlshim_multi_add_handle(CURLM *handle, CURL *easy) { return library.curl_multi_add_handle(handle, easy); }

CURLMcode curlshim_multi_remove_handle(CURLM *handle, CURL *easy) {
    return library.curl_multi_remove_handle(handle, easy);
}

CURLMcode curlshim_multi_socket_action(CURLM *handle, curl_socket_t descriptor, int events, int *running) {
    curlshim_meter_anew();
    return library.curl_multi_socket_action(handle, descriptor, events, running);
}

CURLMsg *curlshim_multi_info_read(CURLM *handle, int *left) { return library.curl_multi_info_read(handle, left); }

// Parentheses suppress libcurl's type-checking macros.

CURLcode curlshim_easy_set_long(CURL *handle, CURLoption option, long value) {
    return (library.curl_easy_setopt)(handle, option, value);
}

CURLcode curlshim_easy_set_offset(CURL *handle, CURLoption option, curl_off_t value) {
    return (library.curl_easy_setopt)(handle, option, value);
}

CURLcode curlshim_easy_set_string(CURL *handle, CURLoption option, const char *value) {
    return (library.curl_easy_setopt)(handle, option, value);
}

CURLcode curlshim_easy_set_pointer(CURL *handle, CURLoption option, void *value) {
    return (library.curl_easy_setopt)(handle, option, value);
}

CURLcode curlshim_easy_set_blob(CURL *handle, CURLoption option, const void *bytes, size_t count) {
    // libcurl does not write to the bytes.
    struct curl_blob blob = {(void *)bytes, count, CURL_BLOB_COPY};
    return (library.curl_easy_setopt)(handle, option, &blob);
}

CURLcode curlshim_easy_set_url(CURL *handle, CURLU *value) {
    return (library.curl_easy_setopt)(handle, CURLOPT_CURLU, value);
}

CURLcode curlshim_easy_set_list(CURL *handle, CURLoption option, struct curl_slist *value) {
    return (library.curl_easy_setopt)(handle, option, value);
}

CURLcode curlshim_easy_set_data_callback(CURL *handle, CURLoption option, curl_write_callback value) {
    return (library.curl_easy_setopt)(handle, option, value);
}

CURLcode curlshim_easy_set_opensocket_callback(CURL *handle, curl_opensocket_callback value) {
    return (library.curl_easy_setopt)(handle, CURLOPT_OPENSOCKETFUNCTION, value);
}

CURLcode curlshim_easy_set_closesocket_callback(CURL *handle, curl_closesocket_callback value) {
    return (library.curl_easy_setopt)(handle, CURLOPT_CLOSESOCKETFUNCTION, value);
}

CURLcode curlshim_easy_set_prereq_callback(CURL *handle, curl_prereq_callback value) {
    return (library.curl_easy_setopt)(handle, CURLOPT_PREREQFUNCTION, value);
}

CURLcode curlshim_easy_get_long(CURL *handle, CURLINFO info, long *value) {
    return (library.curl_easy_getinfo)(handle, info, value);
}

CURLcode curlshim_easy_get_offset(CURL *handle, CURLINFO info, curl_off_t *value) {
    return (library.curl_easy_getinfo)(handle, info, value);
}

long curlshim_socket_silence(curl_socket_t descriptor) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length)) return -1;
    return info.tcpi_last_data_recv;
}

CURLMcode curlshim_multi_set_long(CURLM *handle, CURLMoption option, long value) {
    return (library.curl_multi_setopt)(handle, option, value);
}

CURLMcode curlshim_multi_set_pointer(CURLM *handle, CURLMoption option, void *value) {
    return (library.curl_multi_setopt)(handle, option, value);
}

CURLMcode curlshim_multi_set_socket_callback(CURLM *handle, curl_socket_callback value) {
    return (library.curl_multi_setopt)(handle, CURLMOPT_SOCKETFUNCTION, value);
}

CURLMcode curlshim_multi_set_timer_callback(CURLM *handle, curl_multi_timer_callback value) {
    return (library.curl_multi_setopt)(handle, CURLMOPT_TIMERFUNCTION, value);
}

void *curlshim_easy_private(CURL *handle) {
    char *value = NULL;
    return (library.curl_easy_getinfo)(handle, CURLINFO_PRIVATE, &value) == CURLE_OK ? value : NULL;
}
