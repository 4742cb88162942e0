/* cmd_launch_executors.c - diloco launch executors: the table of executors, for people and as JSON.
 */
#include "cli/cli.h"
#include "launch/executor.h"

#include <inttypes.h>

/* Bytes of the JSON. */
enum { JSON_MAX = 1 << 20 };

/* The abilities of an executor, from its table (launch/executor.h). */
static void json_executor(dl_json *j, const dl_executor *e)
{
    char found[DL_FOUND_MAX + 1] = "";
    if (e->found) e->found(found, NULL);
    dl_json_object(j, NULL);
    dl_json_str(j, "name", e->name);
    dl_json_str(j, "needs", e->needs);
    dl_json_str(j, "tested", e->tested);
    dl_json_str(j, "api", e->caps.api);
    if (*found)
        dl_json_str(j, "found", found);
    else
        dl_json_null(j, "found");
    dl_json_str(j, "net", e->caps.net);
    dl_json_str(j, "rank", e->caps.rank_env);
    dl_json_str(j, "logs", e->caps.log_api);
    dl_json_str(j, "secrets", e->caps.secrets);
    dl_json_str(j, "restart", e->caps.restart);
    dl_json_str(j, "price", e->caps.price);
    dl_json_u64(j, "max_runtime_s", e->caps.max_runtime_s);
    dl_json_bool(j, "spot", e->caps.spot);
    dl_json_bool(j, "gang", e->caps.gang);
    dl_json_end(j);
}

/* Print all executors as one array, in the order of the table. */
static diloco_status print_executors_json(void)
{
    dl_buf buf;
    dl_json j;
    dl_buf_init(&buf, JSON_MAX);
    dl_json_init(&j, &buf);
    dl_json_array(&j, NULL);
    for (size_t i = 0; dl_executor_at(i); i++)
        json_executor(&j, dl_executor_at(i));
    dl_json_end(&j);
    return dl_print_json(&j, &buf);
}

/* The longest time of a replica that the backend permits. */
static void print_limit(const dl_executor *e)
{
    if (e->caps.max_runtime_s)
        printf("  limit      %" PRIu32 " s for each replica\n", e->caps.max_runtime_s);
    else
        printf("  limit      no time limit of the backend is known\n");
}

/* The backend's program on this machine. */
static void print_found(const dl_executor *e)
{
    char found[DL_FOUND_MAX + 1];
    if (!e->found) return;
    e->found(found, NULL);
    printf("  found      %s\n", *found ? found : "no program that answers on this machine");
}

/* The price itself is the user's own, in the table of launch.prices. */
static void print_price(const dl_executor *e)
{
    if (e->caps.price)
        printf("  price      machine_hour of launch.prices, for %s\n", e->caps.price);
    else
        printf("  price      your own machines: machine_hour of launch.prices, if they cost\n");
}

/* One block for each executor: its URL, its needs, and the answers to the usual questions about
 * a backend. */
static diloco_status cmd_launch_executors(const dl_args *args)
{
    if (dl_args_has(args, DL_FLAG_JSON)) return print_executors_json();
    for (size_t i = 0; dl_executor_at(i); i++) {
        const dl_executor *e = dl_executor_at(i);
        printf("%s--on %s%s%s\n", i ? "\n" : "", e->name, e->place ? "://" : "",
               e->place ? e->place : "");
        printf("  needs      %s\n", e->needs);
        printf("  tested     %s\n", e->tested);
        printf("  api        %s\n", e->caps.api ? e->caps.api : "none");
        print_found(e);
        printf("  network    %s between replicas\n", e->caps.net);
        printf("  rank       %s\n", e->caps.rank_env);
        printf("  logs       %s\n", e->caps.log_api);
        printf("  secrets    %s\n", e->caps.secrets ? e->caps.secrets : "no channel: refused");
        printf("  restarts   by the backend: %s\n", e->caps.restart);
        print_limit(e);
        print_price(e);
        printf("  preempts   %s; starts %s\n", e->caps.spot ? "may" : "no",
               e->caps.gang ? "all or none with launch.gang, else each replica by itself"
                            : "each replica by itself");
    }
    return DILOCO_OK;
}

const dl_command dl_command_launch_executors = {
    .name = "launch executors",
    .summary = "executors: needs, capabilities, what each was tested against",
    .flags = DL_FLAGS(DL_FLAG_JSON),
    .run = cmd_launch_executors,
};
