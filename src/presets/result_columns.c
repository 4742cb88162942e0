/* result_columns.c - see result_columns.h. */
#include "presets/result_columns.h"

#include <string.h>

/* In the order of the enum in result_columns.h. A new column is a member there and its name
 * here. */
const char *const dl_result_names[DL_RESULTS_COLUMNS] = {"round",     "accuracy",   "elapsed_time",
                                                         "test_loss", "train_loss", "comm_overhead",
                                                         "clients",   "steps",      "samples"};

/* Return the number of a column, or -1. The name is a part of a longer text, hence its length. */
static int column_of(const char *name, size_t len)
{
    for (int i = 0; i < DL_RESULTS_COLUMNS; i++)
        if (strlen(dl_result_names[i]) == len && memcmp(dl_result_names[i], name, len) == 0)
            return i;
    return -1;
}

/* A word may be followed by commas and spaces in any number. A column that is there twice is
 * refused, since programs read the file by its head. */
bool dl_result_columns_read(int columns[DL_RESULTS_COLUMNS], size_t *n, const char *text)
{
    *n = 0;
    for (text += strspn(text, " ,"); *text; text += strspn(text, " ,")) {
        size_t len = strcspn(text, " ,");
        int column = column_of(text, len);
        for (size_t i = 0; i < *n; i++)
            if (columns[i] == column) return false;
        if (column < 0) return false;
        columns[(*n)++] = column;
        text += len;
    }
    return *n > 0;
}

/* The error lists the words by hand; it is the only place besides dl_result_names. */
diloco_status dl_result_columns_choose(int columns[DL_RESULTS_COLUMNS], size_t *n,
                                       const dl_config *config)
{
    if (dl_result_columns_read(columns, n, config->result_types)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "results.types = \"%s\": name columns, each once, of round, accuracy, "
                   "elapsed_time, test_loss, train_loss, comm_overhead, clients, steps, samples",
                   config->result_types);
}

diloco_status dl_results_check(const dl_config *config)
{
    int columns[DL_RESULTS_COLUMNS];
    size_t n;
    return dl_result_columns_choose(columns, &n, config);
}
