/* contract.h - whether a run follows Plato's DiLoCo contract (docs/contract.md). The record of a
 * run says so, and people compare only runs that do. */
#ifndef DL_PRESETS_CONTRACT_H
#define DL_PRESETS_CONTRACT_H

#include "base/config.h"

/* Return "faithful", "unfaithful" (dl_check_warnings says why) or "none" (another algorithm), as
 * a constant text for the record. */
const char *dl_contract_name(const dl_config *config);

#endif
