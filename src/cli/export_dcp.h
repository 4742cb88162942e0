/* export_dcp.h - a run's model and outer state as a checkpoint of torch.distributed (DCP). */
#ifndef DL_CLI_EXPORT_DCP_H
#define DL_CLI_EXPORT_DCP_H

#include "base/config.h"
#include <diloco/train.h>

/* dl_export_dcp writes a checkpoint into the folder `to`, which is made if it does not exist. torch
 * itself writes it, in a Python process (diloco.dcp), which sees neither the run's URL nor a
 * secret. Returns DILOCO_EREFUSED for a dtype other than f32, DILOCO_EEXIST if the folder has a
 * checkpoint, and DILOCO_EINVAL or DILOCO_EIO if Python or torch is missing or fails, with its
 * message. Other errors are those of diloco_theta_read. After an error the folder may exist,
 * without a checkpoint. */
DL_MUST_CHECK diloco_status dl_export_dcp(diloco_export_report *out, const dl_config *config,
                                          const char *dtype, const char *to);

#endif
