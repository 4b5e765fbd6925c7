#ifndef EARSHOT_CLIBCURL_SHIM_H
#define EARSHOT_CLIBCURL_SHIM_H

#include <arpa/inet.h>
#include <sys/socket.h>

#include <curl/curl.h>

// libcurl is loaded when it is first used, not with the program: it and the thirty libraries that it needs take 3 ms, and
// of the processes that run this program only workers download. So nothing here is linked with it. What is called
// `curlshim_NAME` is `curl_NAME` of the loaded library; before it is loaded none of them may be called.

/// Called when the peer of a TLS session has said close_notify, with the arguments of `curlshim_tls_follow`.
typedef void (*curlshim_goodbye)(void *context, unsigned long number);

/// Loads libcurl and looks up its functions, and those of OpenSSL if libcurl was built with it. To be called once.
///
/// Returns NULL, or a sentence about a missing function, which lives until the next error of the dynamic linker.
const char *curlshim_load(curlshim_goodbye goodbye);

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

// libcurl's setters and getters are variadic: an argument of the wrong width is silent corruption, and Swift cannot
// call them. So one function for each type of argument.

CURLcode curlshim_easy_set_long(CURL *handle, CURLoption option, long value);
CURLcode curlshim_easy_set_offset(CURL *handle, CURLoption option, curl_off_t value);
CURLcode curlshim_easy_set_string(CURL *handle, CURLoption option, const char *value);
CURLcode curlshim_easy_set_pointer(CURL *handle, CURLoption option, void *value);
/// Hands over bytes that libcurl copies.
CURLcode curlshim_easy_set_blob(CURL *handle, CURLoption option, const void *bytes, size_t count);
CURLcode curlshim_easy_set_url(CURL *handle, CURLU *value);
CURLcode curlshim_easy_set_list(CURL *handle, CURLoption option, struct curl_slist *value);
CURLcode curlshim_easy_set_data_callback(CURL *handle, CURLoption option, curl_write_callback value);
CURLcode curlshim_easy_set_opensocket_callback(CURL *handle, curl_opensocket_callback value);
CURLcode curlshim_easy_set_closesocket_callback(CURL *handle, curl_closesocket_callback value);
CURLcode curlshim_easy_set_prereq_callback(CURL *handle, curl_prereq_callback value);

CURLcode curlshim_easy_get_long(CURL *handle, CURLINFO info, long *value);
CURLcode curlshim_easy_get_offset(CURL *handle, CURLINFO info, curl_off_t *value);

/// Milliseconds since the kernel last received bytes on a TCP connection; -1 if it is none.
long curlshim_socket_silence(curl_socket_t descriptor);

CURLMcode curlshim_multi_set_long(CURLM *handle, CURLMoption option, long value);
CURLMcode curlshim_multi_set_pointer(CURLM *handle, CURLMoption option, void *value);
CURLMcode curlshim_multi_set_socket_callback(CURLM *handle, curl_socket_callback value);
CURLMcode curlshim_multi_set_timer_callback(CURLM *handle, curl_multi_timer_callback value);

/// The TLS session of the connection that `handle` uses, from its pre-request callback on. NULL without TLS, and with
/// another TLS library than OpenSSL.
void *curlshim_easy_tls(CURL *handle);

/// Reports the peer's close_notify on `tls` with `context`, which must outlive the session, and `number`.
void curlshim_tls_follow(void *tls, void *context, unsigned long number);

/// Whether client and server agreed on HTTP/2.
int curlshim_tls_speaks_http2(const void *tls);

/// Called for each DATA, HEADERS or RST_STREAM frame of a transfer's stream, with the bytes of body in it and whether it has
/// END_STREAM.
typedef void (*curlshim_stream_note)(CURL *handle, size_t bytes, int is_end);

/// Reports the frames of all HTTP/2 connections to `note`, and ends connections that flood libcurl with frames, if a request to a
/// canned response shows that this works. To be called once, after `curlshim_global_init` and before any transfer.
///
/// Returns whether it works.
int curlshim_follow_streams(curlshim_stream_note note);

/// What CURLOPT_PRIVATE was set to; NULL if it was not.
void *curlshim_easy_private(CURL *handle);

/// Whether bytes that were received wait inside the session, decrypted or not.
int curlshim_tls_has_pending(const void *tls);

/// Whether the socket is open and has nothing to read.
int curlshim_is_quiet(curl_socket_t descriptor);

/// The port that the socket is bound to; -1 if `descriptor` is no socket of an IP version.
int curlshim_local_port(curl_socket_t descriptor);

/// Writes an address that libcurl is about to connect to as numeric text, without zone and port; 0 if it is of neither
/// IP version. It lies behind the end of its struct as Swift knows it.
static inline int curlshim_address_text(const struct curl_sockaddr *address, char text[INET6_ADDRSTRLEN]) {
    const void *place = NULL;
    if (address->family == AF_INET) {
        place = &((const struct sockaddr_in *)&address->addr)->sin_addr;
    } else if (address->family == AF_INET6) {
        place = &((const struct sockaddr_in6 *)&address->addr)->sin6_addr;
    }
    return place && inet_ntop(address->family, place, text, INET6_ADDRSTRLEN);
}

/// The socket that libcurl would open itself, not handed on to children.
static inline curl_socket_t curlshim_open_socket(const struct curl_sockaddr *address) {
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/// The result of a finished transfer; it lies in a union, which Swift reads only through its own layout.
static inline CURLcode curlshim_message_result(const CURLMsg *message) {
    return message->data.result;
}

#endif
