/* cmd_replica.c - one replica, as a process that train or join started (processes.h).
 *
 * Its parent listens; when the parent has ended, it stops as if asked to. Lines come from
 * several threads (the log, the record, progress), so each is one write under a lock. */
#include "base/clock.h"
#include "base/file.h"
#include "cli/crew/processes.h"
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include "fed/fed.h"
#include "fetch/fetch_data.h"
#include <diloco/log.h>
#include <diloco/train.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>

/* Bytes of one event, and of the settings from the parent, which crew.c bounds equally. */
enum { LINE_MAX_BYTES = 1 << 16, SETTINGS_MAX = 1 << 20 };

/* The parent draws at most ten times a second, so more progress would not be seen. */
#define PROGRESS_EVERY (100 * DL_MILLISECOND)

/* Set by a signal or by the end of the parent; the trainer reads it after each step. */
static volatile int stop;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards writing to the events */

/* Async-signal-safe: called by the handler and by any thread. */
static void ask_to_stop(void)
{
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED); /* another thread reads it */
}

static void on_signal(int signal)
{
    (void)signal;
    ask_to_stop();
}

/* The first signal asks for a clean stop. A second one is sent by the parent as SIGKILL. SIGPIPE
 * is ignored, so writing to a parent that has ended is an error and not a death. */
static void take_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* ---- reporting to the parent */

/* Send one line. If the parent is gone, nothing listens any more: stop cleanly and keep the
 * saved state. */
static void send_line(const void *line, size_t len)
{
    const dl_span spans[] = {{line, len}, {"\n", 1}};
    pthread_mutex_lock(&lock);
    if (dl_fd_write(DL_EVENTS_FD, spans, 2, "the parent process")) ask_to_stop(); /* it is gone */
    pthread_mutex_unlock(&lock);
}

/* End the object and send it. A line that is too long is left out: progress is not worth an
 * error. */
static void send_json(dl_json *json, dl_buf *buf)
{
    dl_json_end(json);
    if (!dl_json_done(json)) send_line(buf->data, buf->len);
    dl_buf_deinit(buf);
}

/* Begin an event of this kind; send_json ends it and frees the buffer. */
static void begin(dl_json *json, dl_buf *buf, const char *event)
{
    dl_buf_init(buf, LINE_MAX_BYTES);
    dl_json_init(json, buf);
    dl_json_object(json, NULL);
    dl_json_str(json, "event", event);
}

/* A line of the library's log. Any thread of the replica may call it. */
static void on_log(void *user, diloco_log_level level, const char *line)
{
    dl_buf buf;
    dl_json json;
    char said[2048];
    (void)user;
    dl_printable(said, sizeof said, line);
    begin(&json, &buf, "log");
    dl_json_u64(&json, "level", level);
    dl_json_str(&json, "text", said);
    send_json(&json, &buf);
}

/* The record goes to the parent as it is written to the store, line by line. */
static void on_record(void *user, const char *line, size_t len)
{
    (void)user;
    send_line(line, len);
}

/* The last progress that was sent, to send less of it. */
typedef struct shown {
    dl_time at;     /* when it was sent */
    char phase[16]; /* which it had */
} shown;

/* Send the progress: at most ten times a second, which is enough for eyes. A change of phase is
 * reported at once. */
static void on_progress(void *user, const diloco_progress *p)
{
    shown *last = user;
    dl_time now = dl_clock_now();
    dl_buf buf;
    dl_json json;
    if (now - last->at < PROGRESS_EVERY && strcmp(last->phase, p->phase) == 0) return;
    last->at = now;
    snprintf(last->phase, sizeof last->phase, "%s", p->phase);
    begin(&json, &buf, "progress");
    dl_json_u64(&json, "step", p->step);
    dl_json_u64(&json, "position", p->position);
    dl_json_u64(&json, "positions", p->positions);
    dl_json_u64(&json, "entry", p->entry);
    dl_json_u64(&json, "entries", p->entries);
    dl_json_f64(&json, "loss", p->loss);
    dl_json_f64(&json, "tokens_per_s", p->tokens_per_s);
    dl_json_f64(&json, "eta_s", p->eta_s);
    dl_json_str(&json, "phase", p->phase);
    send_json(&json, &buf);
}

/* How much of the data at an address has arrived. */
static void on_data(void *user, size_t bytes, size_t of)
{
    char line[128];
    dl_unit_text size;
    snprintf(line, sizeof line, "data: %d %% of %s have arrived",
             (int)(100.0 * (double)bytes / (double)of), dl_bytes_text(size, (double)of));
    on_log(user, (diloco_log_level)DL_NOTICE_LEVEL, line);
}

/* The last line. The parent then knows the status even where an exit code could not carry it. */
static void send_exit(diloco_status status)
{
    dl_buf buf;
    dl_json json;
    begin(&json, &buf, "exit");
    dl_json_u64(&json, "status", status);
    dl_json_str(&json, "text", status ? diloco_error_text() : "");
    send_json(&json, &buf);
}

/* ---- the process */

/* Read the settings from the memory file that the parent has passed on. A replica that a person
 * starts by hand has none. */
static diloco_status receive_settings(dl_config *config)
{
    dl_buf text;
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", DL_SETTINGS_FD);
    dl_buf_init(&text, SETTINGS_MAX);
    diloco_status status = dl_file_read(&text, path);
    if (!status) status = dl_settings_read(config, text.data, text.len);
    dl_buf_deinit(&text);
    return status ? dl_fail_context(DILOCO_EINVAL, "a replica is started by train or join")
                  : DILOCO_OK;
}

/* The way of training depends on the run: with a log, without one, or with logical clients. */
static diloco_status train(const dl_config *config, const char *name,
                           const diloco_train_hooks *hooks)
{
    if (dl_swarm_is(config)) return dl_swarm_train(config, name, hooks);
    return dl_config_federated(config) ? dl_fed_train(config, name, hooks)
                                       : diloco_train(config, name, hooks);
}

/* Data that is still arriving is fetched by this process, and by its siblings. Exit code 0 means
 * only that the status was sent. */
static diloco_status cmd_replica(const dl_args *args)
{
    dl_config config;
    shown last = {.at = 0};
    const diloco_train_hooks hooks = {
        .on_progress = on_progress, .on_record = on_record, .user = &last, .stop = &stop};
    take_signals();
    dl_swarm_use_peers();
    DL_TRY(receive_settings(&config));
    /* With --new another generation of this name means that another machine was quicker (P6). */
    config.first_generation = dl_args_has(args, DL_FLAG_NEW);
    diloco_log_set(on_log, NULL, DILOCO_LOG_INFO);
    const dl_early_hooks data = {.stop = &stop, .fills = true, .progress = on_data};
    diloco_status status = dl_fetch_ready(&config, &data);
    if (!status) status = train(&config, args->target, &hooks);
    send_exit(status);
    dl_early_close();
    return DILOCO_OK; /* the parent has the status, and prints the message */
}

const dl_command dl_command_replica = {
    .name = "replica",
    .target = "NAME",
    .details = "Started by train and join; see processes.h.",
    .flags = DL_FLAGS(DL_FLAG_NEW),
    .run = cmd_replica,
};
