#ifndef EARSHOT_CLIBCURL_LOADED_H
#define EARSHOT_CLIBCURL_LOADED_H

#include <curl/curl.h>

// Function table of the loaded libcurl, for the files of this target.
struct curlshim_loaded {
    // Handle from dlopen.
    void *library;
    __typeof__(curl_easy_init) *easy_init;
    __typeof__(curl_easy_cleanup) *easy_cleanup;
    __typeof__(curl_easy_perform) *easy_perform;
    CURLcode (*easy_setopt)(CURL *handle, CURLoption option, ...);
    CURLcode (*easy_getinfo)(CURL *handle, CURLINFO info, ...);
};
extern struct curlshim_loaded curlshim_loaded;

// Called when the owner enters libcurl: restarts the input meters of all HTTP/2 connections.
void curlshim_meter_anew(void);

#endif
