/* Requests from the origin by libcurl's multi interface in the client's process. It reuses easy handles, and the
   multi handle keeps the connections (libcurl-tutorial(3), libcurl-multi(3)). SERVER is unused. */
#define _GNU_SOURCE
#include "load.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A transfer, and the received part of its body. */
typedef struct {
    CURL *easy;
    long number;
    size_t size, room;
    char *body;
} transfer;

static size_t write_body(char *data, size_t one, size_t size, void *context)
{
    transfer *to = context;
    (void)one;
    if (to->size + size > to->room) {
        to->room = (to->size + size) * 2;
        to->body = realloc(to->body, to->room);
        if (!to->body) abort();
    }
    memcpy(to->body + to->size, data, size);
    to->size += size;
    return size;
}

static int begin(CURLM *multi, transfer *new, load_client *client)
{
    char url[LOAD_URL_BYTES];
    new->number = load_next(client, url);
    if (new->number < 0) return 0;
    new->size = 0;
    curl_easy_setopt(new->easy, CURLOPT_URL, url);
    return curl_multi_add_handle(multi, new->easy) == CURLM_OK;
}

static int client(load_client *client)
{
    curl_global_init(CURL_GLOBAL_ALL);
    CURLM *multi = curl_multi_init();
    transfer *all = calloc((size_t)client->outstanding, sizeof *all);
    if (!all) abort();
    for (int i = 0; i < client->outstanding; i++) {
        all[i].easy = curl_easy_init();
        curl_easy_setopt(all[i].easy, CURLOPT_WRITEFUNCTION, write_body);
        curl_easy_setopt(all[i].easy, CURLOPT_WRITEDATA, &all[i]);
        curl_easy_setopt(all[i].easy, CURLOPT_PRIVATE, &all[i]);
        curl_easy_setopt(all[i].easy, CURLOPT_FAILONERROR, 1L);
        curl_easy_setopt(all[i].easy, CURLOPT_NOSIGNAL, 1L);
    }
    load_ready(client);
    for (int i = 0; i < client->outstanding; i++) begin(multi, &all[i], client);
    while (client->answered < client->requests) {
        int running, left;
        if (curl_multi_perform(multi, &running) != CURLM_OK) return fprintf(stderr, "curl_multi_perform failed\n"), 1;
        int some = 0;
        for (CURLMsg *message; (message = curl_multi_info_read(multi, &left));) {
            CURLcode code = message->data.result;
            CURL *easy = message->easy_handle;
            transfer *ended;
            curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&ended);
            if (code != CURLE_OK) return fprintf(stderr, "%s\n", curl_easy_strerror(code)), 1;
            curl_multi_remove_handle(multi, easy);
            if (load_answered(client, ended->number, ended->body, ended->size) != 0) return 1;
            begin(multi, ended, client);
            some = 1;
        }
        if (!some) curl_multi_poll(multi, NULL, 0, 1000, NULL);
    }
    for (int i = 0; i < client->outstanding; i++) {
        curl_easy_cleanup(all[i].easy);
        free(all[i].body);
    }
    free(all);
    curl_multi_cleanup(multi);
    return 0;
}

int main(int count, char **arguments)
{
    return load_main(count, arguments, client);
}
