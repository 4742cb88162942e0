/* json_parse.h - shared by json.c and json_parse.c. */
#ifndef DL_BASE_JSON_PARSE_H
#define DL_BASE_JSON_PARSE_H

#include "base/json.h"

/* The character at *at inside a checked string, its escape undone, and *at moved past
 * it; false at the closing quote. */
bool dl_json_char(uint32_t *code, const char **at);

#endif
