/* Requests from gearmand: jobs of the function `fetch` with a URL as workload. SERVER is gearmand's port on
   127.0.0.1. With EXTRA `coalesce` jobs for one URL that wait or run at once are one, by gearman's unique ID. */
#define _GNU_SOURCE
#include "load.h"

#include <libgearman/gearman.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static load_client *current;
static int failed;

static gearman_return_t completed(gearman_task_st *task)
{
    long number = (long)(intptr_t)gearman_task_context(task);
    if (load_answered(current, number, gearman_task_data(task), gearman_task_data_size(task)) != 0)
        failed = 1;
    return GEARMAN_SUCCESS;
}

static gearman_return_t was_failed(gearman_task_st *task)
{
    (void)task;
    fprintf(stderr, "gearman: a job failed\n");
    failed = 1;
    return GEARMAN_SUCCESS;
}

static int client(load_client *client)
{
    current = client;
    int coalesce = strcmp(client->extra, "coalesce") == 0;
    gearman_client_st *gearman = gearman_client_create(NULL);
    gearman_client_add_options(gearman, GEARMAN_CLIENT_NON_BLOCKING | GEARMAN_CLIENT_FREE_TASKS);
    gearman_client_add_server(gearman, "127.0.0.1", (in_port_t)atoi(client->server));
    gearman_client_set_complete_fn(gearman, completed);
    gearman_client_set_fail_fn(gearman, was_failed);
    char url[LOAD_URL_BYTES], unique[64];
    load_ready(client);
    while (client->answered < client->requests && !failed) {
        for (long number; (number = load_next(client, url)) >= 0;) {
            gearman_return_t result;
            snprintf(unique, sizeof unique, "%ld-%d", number, (int)getpid());
            gearman_client_add_task(gearman, NULL, (void *)(intptr_t)number, "fetch", coalesce ? url : unique, url,
                strlen(url), &result);
            if (gearman_failed(result)) return fprintf(stderr, "gearman: %s\n", gearman_client_error(gearman)), 1;
        }
        gearman_return_t result = gearman_client_run_tasks(gearman);
        if (result == GEARMAN_IO_WAIT || result == GEARMAN_NO_ACTIVE_FDS) gearman_client_wait(gearman);
        else if (gearman_failed(result)) return fprintf(stderr, "gearman: %s\n", gearman_client_error(gearman)), 1;
    }
    gearman_client_free(gearman);
    return failed;
}

int main(int count, char **arguments)
{
    return load_main(count, arguments, client);
}
