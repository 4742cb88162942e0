/* executor.c - the table of executors, and the functions that all executors share. They are names
 * and states of jobs, the check of options, and the arguments of a replica. */
#include "launch/executor.h"

#include "base/text.h"
#include "launch/executor_rows.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define ROW(name) &dl_executor_##name,
static const dl_executor *const rows[] = {DL_EXECUTORS(ROW) NULL};

/* Options of [launch] that every executor uses, unless its `without` lists them. Names are between
 * bars, so that a search for "|name|" finds whole names only. */
static const char common[] =
    "|executor|dir|binary|timeout|grace|restarts|lost_after|poll|env|secrets|prices|budget|";

/* ---- states */

static const char *const names[DL_JOB_N_STATES] = {
    [DL_JOB_PENDING] = "PENDING", [DL_JOB_STARTING] = "STARTING",
    [DL_JOB_RUNNING] = "RUNNING", [DL_JOB_SUCCEEDED] = "SUCCEEDED",
    [DL_JOB_FAILED] = "FAILED",   [DL_JOB_CANCELLED] = "CANCELLED",
    [DL_JOB_LOST] = "LOST",
};

const char *dl_job_state_name(dl_job_state state)
{
    return (unsigned)state < DL_JOB_N_STATES ? names[state] : "unknown";
}

bool dl_job_state_of(dl_job_state *out, const char *name)
{
    for (int i = 0; i < DL_JOB_N_STATES; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (dl_job_state)i;
            return true;
        }
    return false;
}

/* The first 8 hex digits of the run's id distinguish the runs of one person. */
void dl_job_init(dl_job *job, const char *run, uint32_t rank, uint32_t generation)
{
    *job = (dl_job){.rank = rank, .generation = generation, .exit_code = -1};
    snprintf(job->name, sizeof job->name, "diloco-%.8s-r%u-g%u", run, rank, generation);
}

/* A message quotes backends and paths, and may be cut within a character. */
static void put_message(dl_job *job, const char *format, va_list args) DL_PRINTF(2, 0);
static void put_message(dl_job *job, const char *format, va_list args)
{
    uint32_t code;
    vsnprintf(job->message, sizeof job->message, format, args);
    const char *end = job->message + strlen(job->message);
    for (char *at = job->message; at < end;) {
        const size_t n = dl_utf8_char(&code, at, (size_t)(end - at));
        if (!n) *at = '?';
        at += n ? n : 1;
    }
    dl_text_clause(job->message);
}

void dl_job_set(dl_job *job, dl_job_state state, int exit_code, const char *format, ...)
{
    va_list args;
    job->state = state;
    job->exit_code = exit_code;
    va_start(args, format);
    put_message(job, format, args);
    va_end(args);
}

void dl_job_set_silent(dl_job *job, const char *format, ...)
{
    va_list args;
    job->silent = true;
    va_start(args, format);
    put_message(job, format, args);
    va_end(args);
}

/* A LOST replica resumes from its saved state. A store that did not answer may answer later, and a
 * full one may have space. */
bool dl_job_may_be_restarted(const dl_job *job)
{
    return job->state == DL_JOB_LOST ||
           (job->state == DL_JOB_FAILED && job->exit_code == diloco_exit_code(DILOCO_EUNREACHABLE));
}

diloco_status dl_job_refuse_other(const dl_job *job, const char *theirs)
{
    if (theirs && !*theirs)
        return dl_fail(DILOCO_EREFUSED,
                       "%s: the backend gave no name for the job %.100s, so it is neither stopped "
                       "nor read",
                       job->name, job->id);
    return dl_fail(
        DILOCO_EREFUSED,
        "%s: the book of launches has the id %.100s for it, but that is another job%s%.63s. "
        "It is neither stopped nor read; another party may have changed the book",
        job->name, job->id, theirs ? ", " : "", theirs ? theirs : "");
}

/* The parts are cut so that they fit into DL_JOB_MESSAGE_MAX together. */
void dl_job_set_other(dl_job *job, const char *theirs)
{
    if (theirs && !*theirs) {
        dl_job_set_silent(job, "the backend gave no name for the job %.80s", job->id);
        return;
    }
    job->silent = false;
    dl_job_set(job, DL_JOB_LOST, -1,
               "not ours: its id in the book of launches, %.80s, is that of another job%s%.63s",
               job->id, theirs ? ", " : "", theirs ? theirs : "");
}

/* ---- the table */

const dl_executor *dl_executor_at(size_t i)
{
    return rows[i];
}

/* The error lists all executors with the form of their place. */
static diloco_status none_named(const char *text)
{
    char known[512] = "";
    for (size_t i = 0; rows[i]; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s%s%s", i ? ", " : "", rows[i]->name,
                 rows[i]->place ? "://" : "", rows[i]->place ? rows[i]->place : "");
    }
    return dl_fail(DILOCO_EINVAL, "there is no executor %.60s; there are: %s", text, known);
}

/* The name ends before "://". The whole name is compared, so that "s" does not find "ssh". */
diloco_status dl_executor_find(const dl_executor **out, const char **on, const char *text)
{
    const char *place = strstr(text, "://");
    const size_t len = place ? (size_t)(place - text) : strlen(text);
    size_t i = 0;
    while (rows[i] && (strlen(rows[i]->name) != len || memcmp(rows[i]->name, text, len) != 0))
        i++;
    if (!rows[i]) return none_named(text);
    *out = rows[i];
    *on = place ? place + 3 : "";
    if (!rows[i]->place == !place && (!place || **on)) return DILOCO_OK;
    if (!rows[i]->place)
        return dl_fail(DILOCO_EINVAL, "--on %.60s: %s takes no place after its name", text,
                       rows[i]->name);
    return dl_fail(DILOCO_EINVAL, "--on %.60s: write it as %s://%s", text, rows[i]->name,
                   rows[i]->place);
}

/* Is the option in a list such as "|cpus|gpus|"? The names have no "launch." before them. */
static bool lists(const char *list, const char *name)
{
    char word[64];
    snprintf(word, sizeof word, "|%s|", name);
    return strstr(list, word) != NULL;
}

bool dl_executor_uses(const dl_executor *executor, const char *option)
{
    if (executor->without && lists(executor->without, option)) return false;
    return lists(common, option) || lists(executor->options, option);
}

diloco_status dl_executor_refuse_option(const dl_executor *executor, const char *name,
                                        const char *origin)
{
    return dl_fail(DILOCO_EREFUSED, "%s (%s) has no meaning with the executor %s: omit it", name,
                   origin, executor->name);
}

/* The table of options is walked, so a new option of [launch] is refused by each executor that does
 * not list it. */
diloco_status dl_executor_check_options(const dl_executor *executor, const dl_config *config)
{
    static const char section[] = "launch.";
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const char *name = dl_config_table.rows[i].name, *rest = name + strlen(section);
        if (strncmp(name, section, strlen(section)) != 0 || !dl_config_given(config, name))
            continue;
        if (strcmp(rest, "secrets") == 0 && !executor->caps.secrets)
            return dl_fail(DILOCO_EREFUSED,
                           "%s (%s): %s has no channel for secrets. Give its machines access to "
                           "the store by their role (launch.role), or store the secrets there",
                           name, dl_config_origin(config, name), executor->name);
        if (!dl_executor_uses(executor, rest))
            return dl_executor_refuse_option(executor, name, dl_config_origin(config, name));
    }
    return DILOCO_OK;
}

/* ---- ids */

#define DIGITS "0123456789"

bool dl_id_is_plain(const char *id, const char *also)
{
    static const char plain[] = DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if (!*id || !strchr(plain, *id)) return false;
    for (; *id; id++)
        if (!strchr(plain, *id) && !strchr(also, *id)) return false;
    return true;
}

bool dl_id_is_number(const char *id)
{
    const size_t len = strlen(id);
    return len >= 1 && len <= 19 && strspn(id, DIGITS) == len;
}

/* ---- words */

/* A copy of `word` with each {rank} replaced; NULL if there is no memory. The caller frees it. */
static char *with_rank(const char *word, const char *rank)
{
    static const char mark[] = "{rank}";
    dl_buf text;
    dl_buf_init(&text, 1 << 20);
    diloco_status status = DILOCO_OK;
    for (const char *at; !status && (at = strstr(word, mark)); word = at + strlen(mark)) {
        status = dl_buf_add(&text, word, (size_t)(at - word));
        if (!status) status = dl_buf_add(&text, rank, strlen(rank));
    }
    if (!status) status = dl_buf_add(&text, word, strlen(word));
    const char *made = status ? NULL : dl_buf_str(&text);
    char *copy = made ? strdup(made) : NULL;
    dl_buf_deinit(&text);
    return copy;
}

/* calloc leaves NULL after the words that were made, so that dl_argv_free works after an error. */
diloco_status dl_replica_argv(char ***out, const dl_launch_spec *spec, const char *program,
                              const char *rank)
{
    size_t n = 0;
    while (spec->argv[n])
        n++;
    char **words = *out = calloc(n + 2, sizeof *words);
    bool whole = words && (words[0] = strdup(program));
    for (size_t i = 0; whole && i < n; i++)
        whole = (words[i + 1] = with_rank(spec->argv[i], rank)) != NULL;
    if (whole) return DILOCO_OK;
    dl_argv_free(words);
    *out = NULL;
    return dl_fail(DILOCO_ENOMEM, "out of memory for a replica's arguments");
}

void dl_argv_free(char **words)
{
    for (char **word = words; word && *word; word++)
        free(*word);
    free(words);
}

/* Text in single quotes has no special characters except the quote itself, which is written as
 * '\''. */
diloco_status dl_shell_quote(dl_buf *out, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "%+,-./:=@_";
    if (*text && strspn(text, plain) == strlen(text)) return dl_buf_add(out, text, strlen(text));
    DL_TRY(dl_buf_add(out, "'", 1));
    for (const char *at = text; *at; at++)
        DL_TRY(*at == '\'' ? dl_buf_add(out, "'\\''", 4) : dl_buf_add(out, at, 1));
    return dl_buf_add(out, "'", 1);
}
