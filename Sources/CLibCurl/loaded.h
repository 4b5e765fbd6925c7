#ifndef EARSHOT_CLIBCURL_LOADED_H
#define EARSHOT_CLIBCURL_LOADED_H

#include <curl/curl.h>

// The loaded libcurl, for the files of this target.
struct curlshim_loaded {
    // From dlopen.
    void *library;
    __typeof__(curl_easy_init) *easy_init;
    __typeof__(curl_easy_cleanup) *easy_cleanup;
    __typeof__(curl_easy_perform) *easy_perform;
    CURLcode (*easy_setopt)(CURL *handle, CURLoption option, ...);
    CURLcode (*easy_getinfo)(CURL *handle, CURLINFO info, ...);
};
extern struct curlshim_loaded curlshim_loaded;

// The owner enters libcurl: input of HTTP/2 connections from here on is metered anew.
void curlshim_meter_anew(void);

#endif
