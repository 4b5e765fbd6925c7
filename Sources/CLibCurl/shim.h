#ifndef EARSHOT_CLIBCURL_SHIM_H
#define EARSHOT_CLIBCURL_SHIM_H

#include <arpa/inet.h>
#include <sys/socket.h>

#include <curl/curl.h>

// libcurl's setters and getters are variadic: an argument of the wrong width is silent corruption, and Swift cannot
// call them. So one function for each type of argument; the parentheses keep libcurl's type-checking macros away.

static inline CURLcode curlshim_easy_set_long(CURL *handle, CURLoption option, long value) {
    return (curl_easy_setopt)(handle, option, value);
}

static inline CURLcode curlshim_easy_set_offset(CURL *handle, CURLoption option, curl_off_t value) {
    return (curl_easy_setopt)(handle, option, value);
}

static inline CURLcode curlshim_easy_set_string(CURL *handle, CURLoption option, const char *value) {
    return (curl_easy_setopt)(handle, option, value);
}

static inline CURLcode curlshim_easy_set_pointer(CURL *handle, CURLoption option, void *value) {
    return (curl_easy_setopt)(handle, option, value);
}

static inline CURLcode curlshim_easy_set_list(CURL *handle, CURLoption option, struct curl_slist *value) {
    return (curl_easy_setopt)(handle, option, value);
}

static inline CURLcode curlshim_easy_set_data_callback(CURL *handle, CURLoption option, curl_write_callback value) {
    return (curl_easy_setopt)(handle, option, value);
}

static inline CURLcode curlshim_easy_set_opensocket_callback(CURL *handle, curl_opensocket_callback value) {
    return (curl_easy_setopt)(handle, CURLOPT_OPENSOCKETFUNCTION, value);
}

static inline CURLcode curlshim_easy_set_prereq_callback(CURL *handle, curl_prereq_callback value) {
    return (curl_easy_setopt)(handle, CURLOPT_PREREQFUNCTION, value);
}

static inline CURLcode curlshim_easy_get_long(CURL *handle, CURLINFO info, long *value) {
    return (curl_easy_getinfo)(handle, info, value);
}

static inline CURLcode curlshim_easy_get_offset(CURL *handle, CURLINFO info, curl_off_t *value) {
    return (curl_easy_getinfo)(handle, info, value);
}

static inline CURLcode curlshim_easy_get_string(CURL *handle, CURLINFO info, const char **value) {
    return (curl_easy_getinfo)(handle, info, value);
}

static inline CURLMcode curlshim_multi_set_long(CURLM *handle, CURLMoption option, long value) {
    return (curl_multi_setopt)(handle, option, value);
}

static inline CURLMcode curlshim_multi_set_pointer(CURLM *handle, CURLMoption option, void *value) {
    return (curl_multi_setopt)(handle, option, value);
}

static inline CURLMcode curlshim_multi_set_socket_callback(CURLM *handle, curl_socket_callback value) {
    return (curl_multi_setopt)(handle, CURLMOPT_SOCKETFUNCTION, value);
}

static inline CURLMcode curlshim_multi_set_timer_callback(CURLM *handle, curl_multi_timer_callback value) {
    return (curl_multi_setopt)(handle, CURLMOPT_TIMERFUNCTION, value);
}

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
