/* own_trainer.h - the program's own trainer, and what only it reads. */
#ifndef DL_RUN_OWN_TRAINER_H
#define DL_RUN_OWN_TRAINER_H

#include <diloco/run.h>

/* dl_run_set_own_trainer says that the program's own trainer trains this replica. Before the join.
 */
void dl_run_set_own_trainer(diloco_run *run);

/* dl_run_note_unread notes which options were set that a caller's own loop does not read, such as a
 * learning rate. Call it before the run's values replace those of the caller. dl_run_warn_of_unread
 * reports them in the record. */
void dl_run_note_unread(diloco_run *run);
void dl_run_warn_of_unread(diloco_run *run);

#endif
