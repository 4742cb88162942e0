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

/* diloco_config_create makes a configuration with all defaults. Returns NULL if memory is short.
 * One thread at a time uses it. */
DILOCO_API diloco_config *diloco_config_create(void);
DILOCO_API void diloco_config_destroy(diloco_config *config); /* NULL is fine */

/* diloco_config_set sets one option from text.
 *
 *   name    as in docs/options.md: "run.store"
 *   value   its text: "runs/mine", "0.7"
 *   origin  source of the value for messages: "run.toml:3:1"; NULL: "program"
 *
 * Returns DILOCO_EINVAL if there is no such option (the text names the nearest), or if the value
 * does not parse or is out of range. Nothing is changed then. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_config_set(diloco_config *config,
                                                             const char *name, const char *value,
                                                             const char *origin);

/* diloco_config_get writes an option's value as text into out[cap]; a secret reads "***". Returns
 * DILOCO_EINVAL if there is no such option or too little room.
 */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_config_get(const diloco_config *config,
                                                             const char *name, char *out,
                                                             size_t cap);
DILOCO_API const char *diloco_config_origin(const diloco_config *config, const char *name);

#ifdef __cplusplus
}
#endif
#endif
