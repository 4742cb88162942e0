/* own_trainer.c - see own_trainer.h. */
#include "run/own_trainer.h"

#include "run/handle.h"

#include <stdio.h>
#include <string.h>

void dl_run_set_own_trainer(diloco_run *run)
{
    run->join.own_trainer = true;
}

/* Returns true if this caller has set the option, and not the run or a preset. */
static bool is_asked_for(const dl_config *config, const dl_option *row)
{
    const char *origin = dl_config_origin(config, row->name);
    return strcmp(origin, "default") != 0 && strcmp(origin, "run") != 0 &&
           strncmp(origin, "preset ", 7) != 0 && !dl_option_reads(row, config, row->fallback);
}

/* With gradients the outer optimizer is the inner one. */
static bool is_read(const diloco_run *run, const dl_option *row)
{
    if (!(row->flags & DL_OPTION_TRAINER)) return true;
    return run->model.has_gradients && (!strncmp(row->name, "parameters.optimizer.", 21) ||
                                        !strcmp(row->name, "trainer.optimizer"));
}

void dl_run_note_unread(diloco_run *run)
{
    char *names = run->join.unread;
    if (*names) return; /* noted by a call that failed later */
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (is_read(run, row) || !is_asked_for(&run->config, row)) continue;
        const size_t used = strlen(names);
        snprintf(names + used, sizeof run->join.unread - used, "%s%s", used ? ", " : "", row->name);
    }
}

void dl_run_warn_of_unread(diloco_run *run)
{
    const dl_event_context c = {.replica = run->replica};
    char text[sizeof run->join.unread + 128];
    if (run->join.own_trainer || !run->join.unread[0]) return;
    snprintf(text, sizeof text,
             "only the program's own trainer reads these options, and this loop does not: %s",
             run->join.unread);
    dl_event_warn(&run->record, &c, "own_trainer", text);
}
