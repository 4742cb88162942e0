/* config.h - the settings of a run, by name. `diloco train --help` lists every name. */
#ifndef DILOCO_CONFIG_H
#define DILOCO_CONFIG_H

#include <diloco/status.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct diloco_config diloco_config;

/* All defaults. NULL when there is no memory. One thread at a time. */
DILOCO_API diloco_config *diloco_config_create(void);
DILOCO_API void diloco_config_destroy(diloco_config *config); /* NULL is fine */

/* Set one option from text. DILOCO_EINVAL: no such option (the nearest is named), or a value
 * that does not parse or is out of range; nothing is changed then. `origin` is told back in
 * messages and by --print-config: "run.toml:3:1", "--set"; NULL: "program". */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_config_set(diloco_config *config,
                                                             const char *name, const char *value,
                                                             const char *origin);

/* The value as text into out[cap]; a secret reads "***". DILOCO_EINVAL: no such option or no room.
 */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_config_get(const diloco_config *config,
                                                             const char *name, char *out,
                                                             size_t cap);
DILOCO_API const char *diloco_config_origin(const diloco_config *config, const char *name);

#ifdef __cplusplus
}
#endif
#endif
