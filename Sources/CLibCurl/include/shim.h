#ifndef EARSHOT_CLIBCURL_SHIM_H
#define EARSHOT_CLIBCURL_SHIM_H

#include <arpa/inet.h>
#include <sys/socket.h>

#include <curl/curl.h>

// libcurl is loaded at its first use instead of being linked. Loading it and the thirty libraries it needs takes 3 ms,
// and only worker processes use it. A function `curlshim_NAME` calls `curl_NAME` of the loaded library, and must not be
// called before curlshim_load.

/// Called when the peer of a TLS session has sent an alert, with the arguments of `curlshim_tls_follow`.
typedef void (*curlshim_alert)(void *context, unsigned long number, int alert);

/// Loads libcurl and looks up its functions, and those of OpenSSL if libcurl was built with it. Must be called once.
///
/// Returns NULL, or a message about a missing function, which is valid until the dynamic linker's next error.
const char *curlshim_load(curlshim_alert alert);

CURLcode curlshim_global_init(long flags);
struct curl_slist *curlshim_slist_append(struct curl_slist *list, const char *string);
void curlshim_slist_free_all(struct curl_slist *list);

CURLU *curlshim_url(void);
void curlshim_url_cleanup(CURLU *handle);
CURLUcode curlshim_url_set(CURLU *handle, CURLUPart part, const char *value, unsigned int flags);

CURL *curlshim_easy_init(void);
void curlshim_easy_cleanup(CURL *handle);
void curlshim_easy_reset(CURL *handle);
CURLcode curlshim_easy_pause(CURL *handle, int directions);

CURLM *curlshim_multi_init(void);
CURLMcode curlshim_multi_cleanup(CURLM *handle);
CURLMcode curlshim_multi_add_handle(CURLM *handle, CURL *easy);
CURLMcode curlshim_multi_remove_handle(CURLM *handle, CURL *easy);
CURLMcode curlshim_multi_socket_action(CURLM *handle, curl_socket_t descriptor, int events, int *running);
CURLMsg *curlshim_multi_info_read(CURLM *handle, int *left);

// libcurl's setters and getters are variadic: an argument of the wrong width corrupts data silently, and Swift cannot
// call them. Hence one function per argument type.

CURLcode curlshim_easy_set_long(CURL *handle, CURLoption option, long value);
CURLcode curlshim_easy_set_offset(CURL *handle, CURLoption option, curl_off_t value);
CURLcode curlshim_easy_set_string(CURL *handle, CURLoption option, const char *value);
CURLcode curlshim_easy_set_pointer(CURL *handle, CURLoption option, void *value);
/// Passes bytes, which libcurl copies.
CURLcode curlshim_easy_set_blob(CURL *handle, CURLoption option, const void *bytes, size_t count);
CURLcode curlshim_easy_set_url(CURL *handle, CURLU *value);
CURLcode curlshim_easy_set_list(CURL *handle, CURLoption option, struct curl_slist *value);
CURLcode curlshim_easy_set_data_callback(CURL *handle, CURLoption option, curl_write_callback value);
CURLcode curlshim_easy_set_opensocket_callback(CURL *handle, curl_opensocket_callback value);
CURLcode curlshim_easy_set_closesocket_callback(CURL *handle, curl_closesocket_callback value);
CURLcode curlshim_easy_set_prereq_callback(CURL *handle, curl_prereq_callback value);

CURLcode curlshim_easy_get_long(CURL *handle, CURLINFO info, long *value);
CURLcode curlshim_easy_get_offset(CURL *handle, CURLINFO info, curl_off_t *value);

/// Milliseconds since the kernel last received bytes on a TCP connection; -1 for another kind of descriptor.
long curlshim_socket_silence(curl_socket_t descriptor);

CURLMcode curlshim_multi_set_long(CURLM *handle, CURLMoption option, long value);
CURLMcode curlshim_multi_set_pointer(CURLM *handle, CURLMoption option, void *value);
CURLMcode curlshim_multi_set_socket_callback(CURLM *handle, curl_socket_callback value);
CURLMcode curlshim_multi_set_timer_callback(CURLM *handle, curl_multi_timer_callback value);

/// Returns the TLS session of the connection that `handle` uses, from its pre-request callback on. NULL without TLS,
/// and with a TLS library other than OpenSSL.
void *curlshim_easy_tls(CURL *handle);

/// Reports the peer's alerts on `tls` with `context`, which must outlive the session, and `number`.
void curlshim_tls_follow(void *tls, void *context, unsigned long number);

/// Whether client and server agreed on HTTP/2.
int curlshim_tls_speaks_http2(const void *tls);

/// Called for each DATA, HEADERS or RST_STREAM frame of a transfer's stream, with the number of body bytes in it and
/// whether it has END_STREAM.
typedef void (*curlshim_stream_note)(CURL *handle, size_t bytes, int is_end);

/// Reports the frames of all HTTP/2 connections to `note`, and closes connections that flood libcurl with frames. A
/// request to a canned response checks that this works. Must be called once, after `curlshim_global_init` and before
/// any transfer.
///
/// Returns whether it works.
int curlshim_follow_streams(curlshim_stream_note note);

/// Returns the value of CURLOPT_PRIVATE; NULL if it is not set.
void *curlshim_easy_private(CURL *handle);

/// Returns whether received bytes are buffered in the session, decrypted or not.
int curlshim_tls_has_pending(const void *tls);

/// Returns whether the socket is open and has no input.
int curlshim_is_quiet(curl_socket_t descriptor);

/// Returns the local port of the socket; -1 if `descriptor` is not an IP socket.
int curlshim_local_port(curl_socket_t descriptor);

/// Writes a destination address of libcurl as numeric text, without zone and port. Returns 0 if it is not an IP
/// address. The address is stored behind the end of the struct that Swift imports.
static inline int curlshim_address_text(const struct curl_sockaddr *address, char text[INET6_ADDRSTRLEN]) {
    const void *octets = NULL;
    if (address->family == AF_INET) {
        octets = &((const struct sockaddr_in *)&address->addr)->sin_addr;
    } else if (address->family == AF_INET6) {
        octets = &((const struct sockaddr_in6 *)&address->addr)->sin6_addr;
    }
    return octets && inet_ntop(address->family, octets, text, INET6_ADDRSTRLEN);
}

/// Opens the socket that libcurl requests, with close-on-exec.
static inline curl_socket_t curlshim_open_socket(const struct curl_sockaddr *address) {
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/// Returns the result of a finished transfer. It is stored in a union, which Swift cannot read safely.
static inline CURLcode curlshim_message_result(const CURLMsg *message) {
    return message->data.result;
}

#endif
