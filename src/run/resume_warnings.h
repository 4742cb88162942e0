/* resume_warnings.h - warnings of a replica about the state that it resumed from. */
#ifndef DL_RUN_RESUME_WARNINGS_H
#define DL_RUN_RESUME_WARNINGS_H

#include "run/handle.h"

/* Returns the name of the first device that was registered, "cpu" if all is in host memory, or ""
 * if the device was given no name. */
const char *dl_run_device_name(const diloco_run *run);

/* dl_run_warn_of_resume reports in the record that another machine or device saved the state, or
 * that a replica which has run before has no state here. `facts` are those of the loaded state, if
 * one was loaded. */
void dl_run_warn_of_resume(diloco_run *run, const dl_local_facts *facts);

#endif
