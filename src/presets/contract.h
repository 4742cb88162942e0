/* contract.h - is a run Plato's DiLoCo to the letter? */
#ifndef DL_PRESETS_CONTRACT_H
#define DL_PRESETS_CONTRACT_H

#include "base/config.h"

/* Return "faithful", "unfaithful" (dl_check_warnings says why) or "none" (another algorithm), as
 * a constant text for the record. */
const char *dl_contract_name(const dl_config *config);

#endif
