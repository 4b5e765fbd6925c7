/* gearman-worker PORT PROCESSES: fixed pool of workers for gearmand's function `fetch`. Each is a process with one
   easy handle and a kept connection: libgearman's worker takes one job at a time. */
#define _GNU_SOURCE
#include <curl/curl.h>
#include <libgearman/gearman.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static CURL *easy;
static char *body;
static size_t size, room;

static size_t write_body(char *data, size_t one, size_t length, void *context)
{
    (void)one;
    (void)context;
    if (size + length > room) {
        room = (size + length) * 2;
        body = realloc(body, room);
        if (!body) abort();
    }
    memcpy(body + size, data, length);
    size += length;
    return length;
}

static gearman_return_t fetch(gearman_job_st *job, void *context)
{
    (void)context;
    char url[1024];
    snprintf(url, sizeof url, "%.*s", (int)gearman_job_workload_size(job), (const char *)gearman_job_workload(job));
    size = 0;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    if (curl_easy_perform(easy) != CURLE_OK) return GEARMAN_ERROR;
    return gearman_failed(gearman_job_send_complete(job, body, size)) ? GEARMAN_ERROR : GEARMAN_SUCCESS;
}

static int work(in_port_t port)
{
    easy = curl_easy_init();
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, write_body);
    curl_easy_setopt(easy, CURLOPT_FAILONERROR, 1L);
    gearman_worker_st *worker = gearman_worker_create(NULL);
    gearman_worker_add_server(worker, "127.0.0.1", port);
    gearman_worker_define_function(worker, "fetch", 5, gearman_function_create(fetch), 0, NULL);
    for (;;)
        if (gearman_failed(gearman_worker_work(worker)))
            return fprintf(stderr, "gearman: %s\n", gearman_worker_error(worker)), 1;
}

int main(int count, char **arguments)
{
    if (count != 3) return fprintf(stderr, "usage: gearman-worker PORT PROCESSES\n"), 64;
    for (int i = 0; i < atoi(arguments[2]); i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            return work((in_port_t)atoi(arguments[1]));
        }
    while (wait(NULL) > 0) continue;
    return 1;
}
