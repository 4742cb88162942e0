/* entry_pace.c - see entry_pace.h. */
#include "run/entry_pace.h"

#include <string.h>

/* The oldest number leaves a full window. */
void dl_entry_pace_note(dl_entry_pace *pace, uint64_t entries, dl_time now)
{
    if (pace->n && pace->entries[pace->n - 1] >= entries) return;
    if (pace->n == DL_ENTRY_PACE_WINDOW) {
        pace->n--;
        memmove(pace->entries, pace->entries + 1, pace->n * sizeof *pace->entries);
        memmove(pace->at, pace->at + 1, pace->n * sizeof *pace->at);
    }
    pace->entries[pace->n] = entries;
    pace->at[pace->n++] = now;
}

double dl_entry_pace_seconds(const dl_entry_pace *pace, dl_time now)
{
    if (pace->n < 2) return 0;
    const size_t last = pace->n - 1;
    const double grown = (double)(pace->entries[last] - pace->entries[0]);
    const double mean = dl_seconds(pace->at[last] - pace->at[0]) / grown;
    const double with_open = dl_seconds(now - pace->at[0]) / (grown + 1);
    return with_open > mean ? with_open : mean;
}
